// Tests that a run that fails leaves its trace.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/trace/trace_report.h"
#include "tools/train/trainer.h"
#include "tools/zoo/gpt.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;

// Runs a given number of steps and then reports that the steps failed.
class FailingRunner final : public JobRunner {
 public:
  FailingRunner(std::unique_ptr<JobRunner> runner, int64_t steps_until)
      : runner_(std::move(runner)), steps_until_(steps_until) {}
  const RunnerFacts& facts() const override { return runner_->facts(); }
  absl::Status Load(const LoadOrder& order) override { return runner_->Load(order); }
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    steps_until_ -= steps;
    absl::StatusOr<std::map<int64_t, StepMetrics>> reported = runner_->RunSteps(steps);
    if (steps_until_ <= 0) return absl::AbortedError("a step that failed");
    return reported;
  }
  absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate() override { return runner_->Evaluate(); }
  absl::Status BeginCheckpoint(const CheckpointOrder& order) override {
    return runner_->BeginCheckpoint(order);
  }
  absl::StatusOr<std::optional<CheckpointWritten>> EndCheckpoint(Wait wait) override {
    return runner_->EndCheckpoint(wait);
  }
  absl::Status Save(const SaveOrder& order) override { return runner_->Save(order); }
  absl::StatusOr<std::vector<actors::NonfiniteFinding>> InspectStep(int64_t as_step) override {
    return runner_->InspectStep(as_step);
  }
  absl::StatusOr<std::vector<ShardSum>> SumWeights() override { return runner_->SumWeights(); }
  std::vector<actors::RankWorkReport> Work() const override { return runner_->Work(); }
  absl::Status WriteTrace(const std::string& path) override { return runner_->WriteTrace(path); }

 private:
  std::unique_ptr<JobRunner> runner_;
  int64_t steps_until_;
};

TEST(FailedRunTest, ARunThatFailsLeavesItsTrace) {
  zoo::TransformerOptions job_options;
  job_options.layers = 1;
  job_options.hidden = 16;
  job_options.heads = 2;
  job_options.sequence = 8;
  job_options.training.batch = 4;
  job_options.training.steps = 1000;
  job_options.training.mesh = "dp=2";
  const absl::StatusOr<proto::Job> job = zoo::GptJob(job_options);
  ASSERT_TRUE(job.ok()) << job.status();
  std::ostringstream log;
  console::Console console(console::Console::Style::kPlain, &log);
  TrainOptions options;
  options.console = &console;
  options.threads_per_device = 1;
  options.trace = TemporaryPath("failed.pftrace");
  std::remove(options.trace.c_str());
  options.runner =
      [](const proto::Job& trained,
         const RunnerOptions& runner_options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
    absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(trained, runner_options);
    if (!runner.ok()) return runner.status();
    return std::make_unique<FailingRunner>(*std::move(runner), 5);
  };
  EXPECT_EQ(Train(*job, options).status().message(), "a step that failed");
  EXPECT_THAT(log.str(), HasSubstr("trace of the failed job written to " + options.trace));
  std::ifstream file(options.trace, std::ios::binary);
  const absl::StatusOr<trace::TraceReport> report =
      trace::ReadTraceReport(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->devices.size(), 2u);
  EXPECT_GE(report->last_step, 4);
}

}  // namespace
}  // namespace weir::train
