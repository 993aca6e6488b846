// From a simulated run to the trace file and its report: virtual time makes every
// number exact.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "actors/launch.h"
#include "actors/testing/pipeline_job.h"
#include "actors/testing/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/trace/trace_report.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::string TracePath() {
  const char* dir = std::getenv("TEST_TMPDIR");
  return std::string(dir != nullptr ? dir : "/tmp") + "/run.pftrace";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::unique_ptr<Session> SimulatedPipeline(const PipelineJob& job, int64_t latency_ns) {
  SessionOptions options;
  options.engine = SessionOptions::EngineKind::kSim;
  options.sim.chooser = SimEngineOptions::Chooser::kByTime;
  options.compute = RankExecutorOptions::Compute::kSkip;
  options.sim_cost_ns = [](const Plan&, const PlanActor& actor) {
    if (actor.name == "forward") return 10000;
    return actor.name == "backward" ? 20000 : 0;
  };
  options.sim_latency_ns = [latency_ns](int64_t bytes, int, int) { return bytes > 0 ? latency_ns : 0; };
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(MakePipelineJob(job), options);
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

TEST(TraceTest, AOneForwardOneBackwardPipelineShowsTheBubbleOfTheFormula) {
  PipelineJob job;
  job.num_stages = 4;
  job.micro_batches = 8;
  job.message_slots = 4;
  std::unique_ptr<Session> session = SimulatedPipeline(job, 0);
  ASSERT_EQ(session->RunSteps(5), absl::OkStatus());
  ASSERT_EQ(session->WriteTrace(TracePath()), absl::OkStatus());
  absl::StatusOr<TraceReport> report = ReadTraceReport(ReadFile(TracePath()));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_stages, 4);
  EXPECT_EQ(report->micro_batches, 8);
  EXPECT_EQ(report->first_step, 1);
  EXPECT_EQ(report->last_step, 4);
  EXPECT_DOUBLE_EQ(report->bubble_formula, 3.0 / 11.0);
  ASSERT_EQ(report->devices.size(), 4u);
  for (const DeviceReport& device : report->devices) {
    EXPECT_NEAR(device.busy + device.waits_for_input + device.waits_for_credit + device.between_acts, 1, 1e-9);
    EXPECT_LE(device.between_acts, 0.1) << device.name;
  }
  // Steps overlap a little across the weight update, so at most the formula.
  EXPECT_LE(report->bubble, report->bubble_formula + 1e-9);
  EXPECT_GE(report->bubble, 0.5 * report->bubble_formula);
}

TEST(TraceTest, TheReportNamesWhoIsWaitedForOnWhichRank) {
  PipelineJob job;
  job.num_stages = 2;
  job.micro_batches = 2;
  std::unique_ptr<Session> session = SimulatedPipeline(job, 500000);
  ASSERT_EQ(session->RunSteps(3), absl::OkStatus());
  ASSERT_EQ(session->WriteTrace(TracePath()), absl::OkStatus());
  absl::StatusOr<TraceReport> report = ReadTraceReport(ReadFile(TracePath()));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_FALSE(report->waits.empty());
  const std::string text = ToText(*report);
  EXPECT_THAT(text, HasSubstr("for register gradient in from actor 'send gradient' on rank 1"));
  EXPECT_THAT(text, HasSubstr("for register activation in from actor 'send activation' on rank 0"));
  EXPECT_THAT(text, HasSubstr("rank 0 · stage 0: busy"));
  EXPECT_THAT(text, HasSubstr("by the formula (p-1)/(m+p-1) with p = 2, m = 2"));
}

TEST(TraceTest, RunsOnThreadsAreTracedToo) {
  TestFeed feed;
  SessionOptions options;
  options.feed = &feed;
  options.trace_capacity = 64;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(LoadTestJob("ring"), options);
  ASSERT_TRUE(session.ok()) << session.status();
  for (int run = 0; run < 30; ++run) ASSERT_EQ((*session)->RunSteps(1), absl::OkStatus());
  ASSERT_EQ((*session)->WriteTrace(TracePath()), absl::OkStatus());
  absl::StatusOr<TraceReport> report = ReadTraceReport(ReadFile(TracePath()));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->devices.size(), 2u);
  EXPECT_GT(report->devices[0].acts_dropped, 0);
  EXPECT_EQ(report->last_step, 29);
  EXPECT_GT(report->devices[0].busy, 0);
}

TEST(TraceTest, AFileThatIsNoTraceIsRefusedAndNeverCrashes) {
  PipelineJob job;
  std::unique_ptr<Session> session = SimulatedPipeline(job, 0);
  ASSERT_EQ(session->RunSteps(2), absl::OkStatus());
  ASSERT_EQ(session->WriteTrace(TracePath()), absl::OkStatus());
  const std::string good = ReadFile(TracePath());
  EXPECT_FALSE(ReadTraceReport("").ok());
  EXPECT_FALSE(ReadTraceReport("not a trace").ok());
  for (size_t length = 0; length < good.size(); length += 7) (void)ReadTraceReport(good.substr(0, length));
  for (size_t at = 0; at < good.size(); at += 3) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    (void)ReadTraceReport(bad);
  }
}

TEST(TraceTest, AnUnwritableFileIsAnError) {
  PipelineJob job;
  std::unique_ptr<Session> session = SimulatedPipeline(job, 0);
  EXPECT_EQ(session->WriteTrace("/no/such/folder/run.pftrace").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace weir
