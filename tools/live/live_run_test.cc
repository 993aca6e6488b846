// Writes the record of a run and reads it as another program does.
#include "tools/live/live_run.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/live/live_reader.h"

namespace weir::live {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

std::unique_ptr<LiveReader> ReaderOfThis() {
  absl::StatusOr<std::unique_ptr<LiveReader>> reader = LiveReader::Open(::getpid());
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

LiveState StateOf(const LiveReader& reader) {
  absl::StatusOr<LiveState> state = reader.State();
  EXPECT_TRUE(state.ok()) << state.status();
  return *std::move(state);
}

std::vector<nlohmann::json> HistoryOf(const LiveReader& reader, const char* what) {
  std::vector<nlohmann::json> events;
  for (const absl::string_view line :
       absl::StrSplit(reader.History(0, 16 << 20), '\n', absl::SkipEmpty())) {
    nlohmann::json event = nlohmann::json::parse(line);
    if (event.contains(what)) events.push_back(event);
  }
  return events;
}

LiveStep StepNumber(int64_t step, double loss) {
  LiveStep done;
  done.step = step;
  done.loss = loss;
  done.step_seconds = 0.5;
  return done;
}

TEST(LiveRunTest, AReaderSeesWhatTheRunIs) {
  ManualClock clock;
  LiveRun run("a name with \"quotes\" and \xff", &clock);
  RunFacts facts;
  facts.steps = 100;
  facts.item = "tokens";
  facts.mesh = "dp=2";
  facts.ranks = 2;
  facts.bytes_of_rank = {100, 200};
  facts.peak_from = "calibrate";
  run.SetFacts(facts);
  run.Enter(Phase::kTraining);
  clock.AdvanceTo(kSecondNs);
  run.ReportStep(StepNumber(1, 2.5));
  run.SetWork({{RankId(0), 0, 0.75, {0.75, 0.25}}, {RankId(1), 0, 0.5, {0.5, 0.5}}});
  LiveWorker worker;
  worker.ranks = {RankId(0), RankId(1)};
  worker.state = LiveWorker::State::kConnected;
  worker.activity = "forward";
  run.SetWorkers({worker}, /*epoch=*/2);
  run.Say("WARNING: something");

  const auto reader = ReaderOfThis();
  const LiveState state = StateOf(*reader);
  EXPECT_EQ(state.title, "a name with \"quotes\" and \xef\xbf\xbd");
  EXPECT_EQ(state.phase, "training");
  EXPECT_EQ(state.steps, 100);
  EXPECT_EQ(state.step.step, 1);
  EXPECT_EQ(state.step.loss, 2.5);
  EXPECT_TRUE(std::isnan(state.step.gradient_norm)) << "none is known yet";
  ASSERT_EQ(state.work.size(), 2);
  EXPECT_EQ(state.work[1].share, 0.5);
  EXPECT_THAT(state.work[0].parts, ElementsAre(0.75, 0.25));
  EXPECT_EQ(state.part_names.size(), kStepParts.size());
  EXPECT_THAT(state.bytes_of_rank, ElementsAre(100, 200));
  EXPECT_TRUE(std::isnan(state.peak_flops)) << "it is not known";
  EXPECT_EQ(state.peak_from, "calibrate");
  EXPECT_GT(state.resident_bytes, 0);
  EXPECT_EQ(state.epoch, 2);
  ASSERT_EQ(state.workers.size(), 1);
  EXPECT_THAT(state.workers[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(state.warnings, 1);
  EXPECT_FALSE(state.has_ended);
  EXPECT_TRUE(reader->IsAlive());
}

TEST(LiveRunTest, WhatGoesOnBeforeTheFirstStepIsToldUntilThen) {
  ManualClock clock;
  LiveRun run("compiles", &clock);
  const auto reader = ReaderOfThis();
  run.SetDoing({"pass", 3, 13});
  EXPECT_EQ(StateOf(*reader).doing.what, "pass");
  EXPECT_EQ(StateOf(*reader).doing.done, 3);
  run.Enter(Phase::kTraining);
  EXPECT_EQ(StateOf(*reader).doing.what, "");
}

TEST(LiveRunTest, ARestartIsInTheStateAndInTheHistoryAndTheRunStartsAgain) {
  ManualClock clock;
  LiveRun run("restarts", &clock);
  const auto reader = ReaderOfThis();
  run.Enter(Phase::kTraining);
  EXPECT_EQ(StateOf(*reader).restarts, 0);
  run.ReportRestart({1, 250, "rank 1 was killed", {}});
  run.ReportRestart({2, 300, "rank 0 was killed", {"rank 2 was killed", "rank 3 was killed"}});
  const LiveState state = StateOf(*reader);
  EXPECT_EQ(state.restarts, 2);
  EXPECT_EQ(state.restarted_after_step, 300);
  EXPECT_EQ(state.phase, "starting");
  EXPECT_FALSE(state.has_ended);
  const std::vector<nlohmann::json> restarts = HistoryOf(*reader, "restart");
  ASSERT_EQ(restarts.size(), 2u);
  EXPECT_EQ(restarts[0]["restart"]["report"], "rank 1 was killed");
  EXPECT_EQ(restarts[1]["restart"]["earlier_reports"],
            nlohmann::json({"rank 2 was killed", "rank 3 was killed"}));
}

TEST(LiveRunTest, ARecoveryIsInTheStateAndInTheHistoryAndTheRunGoesOn) {
  ManualClock clock;
  LiveRun run("recovers", &clock);
  const auto reader = ReaderOfThis();
  run.Enter(Phase::kTraining);
  run.BeginRecovery("rank 1");
  EXPECT_EQ(StateOf(*reader).phase, "starting");
  EXPECT_EQ(StateOf(*reader).doing.what, "recovery of rank 1");
  run.ReportRecovery({1, "rank 1", 250, 248, 0.25, "rank 1 was killed", {"rank 0 was killed"}});
  const LiveState state = StateOf(*reader);
  EXPECT_EQ(state.phase, "training");
  EXPECT_EQ(state.doing.what, "");
  EXPECT_EQ(state.recoveries, 1);
  EXPECT_EQ(state.recovered, "rank 1");
  EXPECT_EQ(state.recovered_to_step, 248);
  EXPECT_EQ(state.recovery_seconds, 0.25);
  EXPECT_EQ(state.restarts, 0);
  const std::vector<nlohmann::json> recoveries = HistoryOf(*reader, "recovery");
  ASSERT_EQ(recoveries.size(), 1u);
  EXPECT_EQ(recoveries[0]["recovery"]["after_step"], 250);
  EXPECT_EQ(recoveries[0]["recovery"]["report"], "rank 1 was killed");
  EXPECT_EQ(recoveries[0]["recovery"]["earlier_reports"], nlohmann::json({"rank 0 was killed"}));
}

TEST(LiveRunTest, AGrowthIsInTheStateAndInTheHistoryAndTheRunGoesOn) {
  ManualClock clock;
  LiveRun run("grows", &clock);
  const auto reader = ReaderOfThis();
  run.Enter(Phase::kTraining);
  EXPECT_EQ(StateOf(*reader).growths, 0);
  run.BeginGrowth();
  EXPECT_EQ(StateOf(*reader).phase, "starting");
  EXPECT_EQ(StateOf(*reader).doing.what, "growth of the mesh");
  run.ReportGrowth({2, 250, 0.5, "epoch 3 has a new process for rank 1"});
  const LiveState state = StateOf(*reader);
  EXPECT_EQ(state.phase, "training");
  EXPECT_EQ(state.doing.what, "");
  EXPECT_EQ(state.growths, 2);
  EXPECT_EQ(state.grown_after_step, 250);
  EXPECT_EQ(state.growth_seconds, 0.5);
  EXPECT_EQ(state.recoveries, 0);
  const std::vector<nlohmann::json> growths = HistoryOf(*reader, "growth");
  ASSERT_EQ(growths.size(), 1u);
  EXPECT_EQ(growths[0]["growth"]["how"], "epoch 3 has a new process for rank 1");
}

TEST(LiveRunTest, AStepHasItsPartsInTheStateAndInTheHistory) {
  ManualClock clock;
  LiveRun run("parts", &clock);
  const auto reader = ReaderOfThis();
  run.ReportStep(StepNumber(1, 1));
  EXPECT_TRUE(StateOf(*reader).step.parts.empty()) << "they are not known";
  clock.AdvanceTo(kSecondNs);
  LiveStep step = StepNumber(2, 1);
  step.mfu = 0.5;
  step.parts = {0.123456, 0.876544};
  run.ReportStep(step);
  EXPECT_THAT(StateOf(*reader).step.parts, ElementsAre(0.1235, 0.8765));
  EXPECT_EQ(StateOf(*reader).step.mfu, 0.5);
  EXPECT_EQ(HistoryOf(*reader, "step").back()["step"]["parts"][1], 0.8765);
}

TEST(LiveRunTest, TheEndStaysReadableAfterTheRunIsGone) {
  ManualClock clock;
  auto run = std::make_unique<LiveRun>("short", &clock);
  const auto reader = ReaderOfThis();
  run->ReportStep(StepNumber(3, NAN));
  run->End(3, "the loss is not finite");
  run.reset();
  const LiveState state = StateOf(*reader);
  EXPECT_TRUE(state.has_ended);
  EXPECT_EQ(state.code, 3);
  EXPECT_EQ(state.report, "the loss is not finite");
  EXPECT_TRUE(std::isnan(state.step.loss));
  EXPECT_EQ(HistoryOf(*reader, "end").size(), 1);
}

// A month of steps of 50 ms.
TEST(LiveRunTest, TheHistoryOfALongRunIsSmallAndReachesFromTheFirstStepToTheLast) {
  ManualClock clock;
  LiveRun run("long", &clock);
  constexpr int64_t kSteps = 30LL * 24 * 3600 * 20, kStride = 300;
  for (int64_t step = 0; step < kSteps; step += kStride) {
    clock.AdvanceTo(step * kSecondNs / 20);
    run.ReportStep(StepNumber(step, 1));
  }
  const auto reader = ReaderOfThis();
  const std::vector<nlohmann::json> steps = HistoryOf(*reader, "step");
  EXPECT_LT(steps.size(), 25'000);
  EXPECT_GT(steps.size(), 8000);
  EXPECT_EQ(steps.front()["step"]["step"], 0);
  EXPECT_GT(steps.back()["step"]["step"], kSteps * 0.999);
}

TEST(LiveRunTest, AReaderNeverSeesHalfAState) {
  ManualClock clock;
  LiveRun run("busy", &clock);
  const auto reader = ReaderOfThis();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; !stop; ++i) run.Say(std::string(static_cast<size_t>(i % 5000), 'x'));
  });
  for (int i = 0; i < 2000; ++i) {
    const absl::StatusOr<std::string> text = reader->StateText();
    EXPECT_TRUE(!text.ok() || nlohmann::json::accept(*text)) << *text;
  }
  stop = true;
  writer.join();
  EXPECT_TRUE(reader->State().ok());
}

TEST(LiveRunTest, HistoryComesInWholeLinesFromAnyPlace) {
  ManualClock clock;
  LiveRun run("lines", &clock);
  for (int i = 0; i < 100; ++i) run.Say(absl::StrCat("line ", i));
  const auto reader = ReaderOfThis();
  const std::string whole = reader->History(0, 1 << 20);
  std::string pieces;
  while (true) {
    const std::string piece = reader->History(static_cast<int64_t>(pieces.size()), 200);
    if (piece.empty()) break;
    EXPECT_EQ(piece.back(), '\n');
    pieces += piece;
  }
  EXPECT_EQ(pieces, whole);
}

TEST(LiveReaderTest, ARunIsFoundByNumberAndByNameAndAChildThatInheritsItIsNone) {
  ManualClock clock;
  LiveRun run(absl::StrCat("run of ", ::getpid()), &clock);
  int hold[2];
  ASSERT_EQ(::pipe(hold), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    ::close(hold[1]);
    (void)!::read(hold[0], &byte, 1);
    ::_exit(0);
  }
  ::close(hold[0]);
  EXPECT_FALSE(LiveReader::Open(child).ok());
  EXPECT_TRUE(FindRun(absl::StrCat(::getpid())).ok());
  EXPECT_TRUE(FindRun(absl::StrCat("run of ", ::getpid())).ok());
  const absl::Status none = FindRun("no such run").status();
  EXPECT_THAT(none.ToString(), HasSubstr("W0891"));
  EXPECT_THAT(none.ToString(), HasSubstr(absl::StrCat(::getpid())));
  ::close(hold[1]);
  ::waitpid(child, nullptr, 0);
}

// Any program may make files of these names.
TEST(LiveReaderTest, ARecordOfNonsenseIsNoRun) {
  for (const std::string& bytes :
       {std::string(), std::string(8, '\xff'), std::string("\x02\0\0\0\0\0\0\0{}", 10)}) {
    const int now = ::memfd_create(kNowName, MFD_CLOEXEC);
    const int history = ::memfd_create(kHistoryName, MFD_CLOEXEC);
    ASSERT_EQ(::write(now, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    EXPECT_FALSE(LiveReader::Open(::getpid()).ok());
    ::close(now);
    ::close(history);
  }
}

TEST(LiveReaderTest, WhatLiesTooDeepIsLeftOut) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const nlohmann::ordered_json state =
      ParseState(absl::StrCat("{\"pid\": 1, \"work\": ", deep, ", \"title\": \"t\"}"));
  EXPECT_EQ(state["title"], "t");
  EXPECT_LT(state.dump().size(), 100);
  const nlohmann::ordered_json copy = state;
  EXPECT_EQ(copy["pid"], 1);
}

TEST(LiveReaderTest, TheStateOfALiveRunIsKeptWhole) {
  ManualClock clock;
  LiveRun run("whole", &clock);
  LiveWorker worker;
  worker.ranks = {RankId(0), RankId(7)};
  run.SetWorkers({worker}, /*epoch=*/1);
  const auto reader = ReaderOfThis();
  const absl::StatusOr<std::string> text = reader->StateText();
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(ParseState(*text), nlohmann::ordered_json::parse(*text));
}

}  // namespace
}  // namespace weir::live
