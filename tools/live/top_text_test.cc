#include "tools/live/top_text.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::live {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kNowMs = 1'000'000;

SeenRun Training() {
  SeenRun run;
  run.pid = 4711;
  LiveState& state = run.state;
  state.title = "gpt";
  state.phase = "training";
  state.phase_since_unix_ms = kNowMs - 72'000;
  state.updated_unix_ms = state.stepped_unix_ms = kNowMs - 100;
  state.has_facts = state.has_step = true;
  state.steps = 500;
  state.parameters = 1'200'000;
  state.ranks = 4;
  state.mesh = "dp=2,tp=2";
  state.where = "in 2 processes";
  state.item = "tokens";
  state.flops_per_step = 2e9;
  state.part_names = {"compute", "waits for other ranks", "waits for free slots"};
  state.bytes_of_rank = {1 << 20, 2 << 20, 3 << 20, 4 << 20};
  state.peak_flops = 16e9;
  state.step = {125, 2.25, 0.5, 1e-3, 52300, 0.5, 72, 0.25, {0.6, 0.396, 0.004}};
  state.work = {{0, 0, 0.8, {0.8, 0.1, 0.1}},
                {1, 0, 0.6, {0.6, 0.3, 0.1}},
                {2, 0, 0.1, {0.1, 0.8, 0.1}},
                {3, 0, 0.1, {0.1, 0.9, 0}}};
  state.workers = {
      {{0, 1}, "", "connected", "forward layers.1", 11, 200, 9000, 96 << 20},
      {{2, 3}, "a-host-with-a-long-name", "ended", std::string(100, 'x'), 12, 0, 9, 0}};
  return run;
}

// Returns the number of characters of UTF-8.
int64_t WidthOf(absl::string_view line) {
  return std::count_if(line.begin(), line.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

TEST(TopTextTest, RecoveriesAreCountedAndTheLastOneIsTold) {
  SeenRun run = Training();
  EXPECT_THAT(TopText(run, kNowMs, 16), Not(HasSubstr("recover")));
  EXPECT_THAT(PrometheusText(run, kNowMs), HasSubstr("weir_recoveries{job_name=\"gpt\"} 0\n"));
  EXPECT_THAT(PrometheusText(run, kNowMs), Not(HasSubstr("weir_recovery_seconds")));
  run.state.recoveries = 2;
  run.state.recovered = "rank 1 and rank 3";
  run.state.recovered_to_step = 119;
  run.state.recovery_seconds = 0.146;
  EXPECT_THAT(
      TopText(run, kNowMs, 16),
      HasSubstr("2 recoveries so far, the last of rank 1 and rank 3, to step 119 in 0.15 s\n"));
  EXPECT_THAT(PrometheusText(run, kNowMs),
              HasSubstr("weir_recovery_seconds{job_name=\"gpt\"} 0.146\n"));
}

TEST(TopTextTest, GrowthsAreCountedAndTheLastOneIsTold) {
  SeenRun run = Training();
  EXPECT_THAT(TopText(run, kNowMs, 16), Not(HasSubstr("grown")));
  EXPECT_THAT(PrometheusText(run, kNowMs), HasSubstr("weir_growths{job_name=\"gpt\"} 0\n"));
  EXPECT_THAT(PrometheusText(run, kNowMs), Not(HasSubstr("weir_growth_seconds")));
  run.state.growths = 1;
  run.state.grown_after_step = 119;
  run.state.growth_seconds = 0.146;
  EXPECT_THAT(TopText(run, kNowMs, 16),
              HasSubstr("the mesh has grown again once, the last time after step 119 in 0.15 s\n"));
  run.state.growths = 2;
  EXPECT_THAT(TopText(run, kNowMs, 16), HasSubstr("the mesh has grown again 2 times, the last"));
  EXPECT_THAT(PrometheusText(run, kNowMs),
              HasSubstr("weir_growth_seconds{job_name=\"gpt\"} 0.146\n"));
}

TEST(TopTextTest, RestartsAreCounted) {
  SeenRun run = Training();
  EXPECT_THAT(TopText(run, kNowMs, 16), Not(HasSubstr("restart")));
  EXPECT_THAT(PrometheusText(run, kNowMs), HasSubstr("weir_restarts{job_name=\"gpt\"} 0\n"));
  run.state.restarts = 2;
  run.state.restarted_after_step = 120;
  EXPECT_THAT(TopText(run, kNowMs, 16), HasSubstr("2 restarts so far, the last after step 120\n"));
  EXPECT_THAT(PrometheusText(run, kNowMs), HasSubstr("weir_restarts{job_name=\"gpt\"} 2\n"));
}

TEST(TopTextTest, AnEpochAfterTheFirstIsTold) {
  SeenRun run = Training();
  run.state.epoch = 1;
  EXPECT_THAT(TopText(run, kNowMs, 16), Not(HasSubstr("epoch")));
  run.state.epoch = 3;
  EXPECT_THAT(TopText(run, kNowMs, 16), HasSubstr("in 2 processes, epoch 3, "));
  EXPECT_THAT(PrometheusText(run, kNowMs), HasSubstr("weir_epoch{job_name=\"gpt\"} 3\n"));
}

TEST(TopTextTest, EveryLineFitsATerminalOf80Columns) {
  SeenRun run = Training();
  run.state.title = std::string(200, 't');
  run.state.said = std::string(200, 's');
  for (const absl::string_view line : absl::StrSplit(TopText(run, kNowMs, 16), '\n'))
    EXPECT_LE(WidthOf(line), kTopColumns) << line;
  for (const absl::string_view line : absl::StrSplit(RunsText({run, run}, kNowMs), '\n'))
    EXPECT_LE(WidthOf(line), kTopColumns) << line;
  EXPECT_THAT(TopText(run, kNowMs, 16, 30), HasSubstr(absl::StrCat(std::string(29, 't'), "…\n")));
  EXPECT_THAT(TopText(run, kNowMs, 16, 400), HasSubstr(absl::StrCat(std::string(200, 's'), "\n")));
}

TEST(TopTextTest, SaysHowFarTheRunIsAndWhatItsProcessesDo) {
  const std::string screen = TopText(Training(), kNowMs, 16);
  EXPECT_THAT(screen, HasSubstr("gpt  pid 4711  training for 1m12s"));
  EXPECT_THAT(screen, HasSubstr("step 125/500 [########......................] 25 %  1m12s left"));
  EXPECT_THAT(screen, HasSubstr("loss 2.25  grad 0.5  lr 0.001"));
  EXPECT_THAT(screen, HasSubstr("500 ms a step  52.3k tokens/s  4.00GFLOP/s  MFU 25 %"));
  EXPECT_THAT(screen, HasSubstr("   70 %  30 %  96.0 MiB  forward")) << "means of ranks 0 and 1";
  EXPECT_THAT(screen, HasSubstr("a-host-with…"));
}

TEST(TopTextTest, OfProcessesOfOneRankTheRowSaysTheRankOnce) {
  SeenRun run = Training();
  run.state.workers = {{{0},
                        "left",
                        "connected",
                        "rank 0: actor 'forward layers.1', act 3, for 2.1 s",
                        11,
                        200,
                        9000,
                        96 << 20},
                       {{1}, "right", "connected", "rank 1 waits", 12, 200, 9000, 96 << 20}};
  const std::string screen = TopText(run, kNowMs, 16);
  EXPECT_THAT(screen, HasSubstr("\nRANKS HOST       PID HEARTBEAT"));
  EXPECT_THAT(screen, HasSubstr("\n0     left        11 "));
  EXPECT_THAT(screen, HasSubstr("MiB  actor 'forward layers.…\n"));
  EXPECT_THAT(screen, HasSubstr("MiB  waits\n"));
}

TEST(TopTextTest, TheStepIsDividedByCause) {
  const std::string screen = TopText(Training(), kNowMs, 16);
  EXPECT_THAT(screen, HasSubstr("compute                             300 ms  60 % [############"));
  EXPECT_THAT(screen, HasSubstr("waits for other ranks               198 ms  40 % [########...."));
  EXPECT_THAT(screen, Not(HasSubstr("free slots"))) << "a part too small to see";
}

TEST(TopTextTest, RanksOfOneProcessHaveTheirPlannedMemory) {
  SeenRun run = Training();
  run.state.workers.clear();
  run.state.resident_bytes = 50 << 20;
  const std::string screen = TopText(run, kNowMs, 16);
  EXPECT_THAT(screen, HasSubstr("2         0      [#.........]  10 %  90 %    3.0 MiB\n"));
  EXPECT_THAT(screen, HasSubstr("memory of the process: 50.0 MiB\n"));
}

TEST(TopTextTest, WithoutAPeakTheScreenSaysWhatWouldTellIt) {
  SeenRun run = Training();
  run.state.peak_flops = run.state.step.mfu = NAN;
  run.state.peak_from = "weir calibrate JOB --keep";
  const std::string screen = TopText(run, kNowMs, 16);
  EXPECT_THAT(screen, HasSubstr("the peak is unknown: weir calibrate JOB --keep\n"));
  EXPECT_THAT(PrometheusText(run, kNowMs), Not(HasSubstr("weir_mfu")));
}

TEST(TopTextTest, ARunThatCompilesSaysWhatItDoes) {
  SeenRun run;
  run.state.phase = "starting";
  run.state.phase_since_unix_ms = run.state.updated_unix_ms = kNowMs;
  run.state.doing = {"compiler pass solve-rhythm of the training plan", 12, 13};
  EXPECT_THAT(TopText(run, kNowMs, 16),
              HasSubstr("compiler pass solve-rhythm of the training plan: 12 of 13 done\n"));
  run.state.phase = "training";
  EXPECT_THAT(TopText(run, kNowMs, 16), Not(HasSubstr("solve-rhythm")));
}

TEST(TopTextTest, MoreProcessesThanRowsAreCounted) {
  SeenRun run = Training();
  run.state.workers.resize(2000, run.state.workers[0]);
  EXPECT_THAT(TopText(run, kNowMs, 16), HasSubstr("and 1,984 more processes"));
}

TEST(TopTextTest, AnEndAndASilenceAreTold) {
  SeenRun run = Training();
  run.state.updated_unix_ms = kNowMs - 10'000;
  EXPECT_THAT(TopText(run, kNowMs, 16), HasSubstr("no news for 10.0s"));
  run.state.stepped_unix_ms = kNowMs - 9'000;
  EXPECT_THAT(TopText(run, kNowMs, 16), HasSubstr("no step for 9.0s"));
  run.is_alive = false;
  EXPECT_THAT(TopText(run, kNowMs, 16), Not(HasSubstr("no step for")));
  EXPECT_THAT(TopText(run, kNowMs, 16), HasSubstr("ended without a word"));
  run.state.has_ended = true;
  run.state.code = 69;
  run.state.report = "The job failed\n  first failure: rank 1";
  const std::string screen = TopText(run, kNowMs, 16);
  EXPECT_THAT(screen, HasSubstr("ended with exit code 69"));
  EXPECT_THAT(screen, HasSubstr("  first failure: rank 1\n"));
  EXPECT_THAT(screen, Not(HasSubstr("left")));
}

TEST(TopTextTest, ARunBeforeItsFirstStepHasALine) {
  SeenRun run;
  run.pid = 1;
  run.state.title = "new";
  run.state.phase = "starting";
  run.state.phase_since_unix_ms = run.state.updated_unix_ms = kNowMs;
  EXPECT_EQ(TopText(run, kNowMs, 16), "new  pid 1  starting for 0ms\n");
}

TEST(PrometheusTextTest, EachGaugeIsDescribedOnceAndHasFiniteValues) {
  SeenRun run = Training();
  run.state.title = "a \"b\"\\";
  run.state.step.loss = NAN;
  const std::string text = PrometheusText(run, kNowMs);
  EXPECT_THAT(text, HasSubstr("weir_step{job_name=\"a \\\"b\\\"\\\\\"} 125\n"));
  EXPECT_THAT(text, Not(HasSubstr("weir_loss")));
  EXPECT_THAT(text, HasSubstr("rank=\"3\"} 0.1\n"));
  EXPECT_THAT(text, HasSubstr("part=\"compute\"} 0.3\n"));
  EXPECT_THAT(text, HasSubstr("rank=\"1\",part=\"waits for other ranks\"} 0.3\n"));
  EXPECT_THAT(text, HasSubstr("\"} 0.25\n")) << "MFU";
  EXPECT_THAT(text, HasSubstr("ranks=\"0,1\",host=\"\"} 100663296\n"));
  run.state.has_ended = true;
  run.state.code = 137;
  EXPECT_THAT(PrometheusText(run, kNowMs),
              HasSubstr("weir_exit_code{job_name=\"a \\\"b\\\"\\\\\"} 137"));
  EXPECT_THAT(PrometheusText(run, kNowMs), Not(HasSubstr("weir_rank_busy_ratio")));
  int described = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    described += line.find("# TYPE weir_rank_busy_ratio gauge") == 0 ? 1 : 0;
  EXPECT_EQ(described, 1);
}

}  // namespace
}  // namespace weir::live
