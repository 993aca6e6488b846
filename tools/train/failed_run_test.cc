// Tests that a run that fails leaves its trace, that no checkpoint is made of replicas that differ,
// and what a run reports that a signal ends while its processes start again.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_folder.h"
#include "tools/trace/trace_report.h"
#include "tools/train/forwarding_runner_testing.h"
#include "tools/train/run_folder.h"
#include "tools/train/run_so_far.h"
#include "tools/train/trainer.h"
#include "tools/zoo/gpt.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;

// Runs a given number of steps. After these, steps fail or replicas differ.
class FailingRunner final : public ForwardingRunner {
 public:
  enum class Failure : uint8_t { kSteps, kReplicas };
  FailingRunner(std::unique_ptr<JobRunner> runner, int64_t steps_until, Failure failure,
                std::atomic<int>* asked = nullptr, std::atomic<bool>* interrupted = nullptr)
      : ForwardingRunner(std::move(runner)),
        steps_until_(steps_until),
        failure_(failure),
        asked_(asked),
        interrupted_(interrupted) {}
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    steps_until_ -= steps;
    absl::StatusOr<std::map<int64_t, StepMetrics>> reported = ForwardingRunner::RunSteps(steps);
    if (steps_until_ > 0) return reported;
    if (failure_ == Failure::kSteps) return absl::AbortedError("a step that failed");
    if (asked_ != nullptr) asked_->store(1);
    if (interrupted_ != nullptr) interrupted_->store(true);
    return reported;
  }
  // Brings the ranks back without states.
  absl::StatusOr<Recovery> Recover(const RecoveryOrder& order) override {
    return Recovery{order.step, false, "they are back", {}};
  }
  absl::StatusOr<std::vector<ShardSum>> SumWeights() override {
    absl::StatusOr<std::vector<ShardSum>> sums = ForwardingRunner::SumWeights();
    if (sums.ok() && failure_ == Failure::kReplicas && steps_until_ <= 0) ++sums->front().crc;
    return sums;
  }

 private:
  int64_t steps_until_;
  const Failure failure_;
  // Set after the last step before the failure; null: nothing is set.
  std::atomic<int>* const asked_;
  std::atomic<bool>* const interrupted_;
};

// Another file replaces each that the run writes, before the run can look at its own.
class ReplacedRunner final : public ForwardingRunner {
 public:
  ReplacedRunner(std::unique_ptr<JobRunner> runner, std::string other)
      : ForwardingRunner(std::move(runner)), other_(std::move(other)) {}
  absl::StatusOr<uint32_t> Save(const SaveOrder& order) override {
    const absl::StatusOr<uint32_t> saved = ForwardingRunner::Save(order);
    std::filesystem::copy_file(other_, order.path,
                               std::filesystem::copy_options::overwrite_existing);
    return saved;
  }

 private:
  const std::string other_;
};

absl::StatusOr<proto::Job> JobOfTwoRanks(int64_t steps) {
  zoo::TransformerOptions job_options;
  job_options.layers = 1;
  job_options.hidden = 16;
  job_options.heads = 2;
  job_options.sequence = 8;
  job_options.training.batch = 4;
  job_options.training.steps = steps;
  job_options.training.mesh = "dp=2";
  return zoo::GptJob(job_options);
}

TEST(FailedRunTest, ARunThatFailsLeavesItsTrace) {
  const absl::StatusOr<proto::Job> job = JobOfTwoRanks(1000);
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
    return std::make_unique<FailingRunner>(*std::move(runner), 5, FailingRunner::Failure::kSteps);
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

TEST(FailedRunTest, NoCheckpointIsMadeOfReplicasThatDiffer) {
  enum class Cause : uint8_t { kRequest, kTime, kInterrupt };
  for (const Cause cause : {Cause::kRequest, Cause::kTime, Cause::kInterrupt}) {
    SCOPED_TRACE(static_cast<int>(cause));
    const absl::StatusOr<proto::Job> job = JobOfTwoRanks(40);
    ASSERT_TRUE(job.ok()) << job.status();
    const TemporaryFolder folder;
    std::ostringstream log;
    console::Console console(console::Console::Style::kPlain, &log);
    std::atomic<int> asked = 0;
    std::atomic<bool> interrupted = false;
    TrainOptions options;
    options.console = &console;
    options.threads_per_device = 1;
    options.checkpoint = folder.PathFor("c") + "/";
    options.checkpoint_every_seconds = cause == Cause::kTime ? 1e-9 : 0;
    options.checkpoints_asked = &asked;
    options.interrupted = &interrupted;
    options.runner =
        [&](const proto::Job& trained,
            const RunnerOptions& runner_options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
      absl::StatusOr<std::unique_ptr<JobRunner>> runner =
          LocalRunner::Open(trained, runner_options);
      if (!runner.ok()) return runner.status();
      return std::make_unique<FailingRunner>(*std::move(runner), 5,
                                             FailingRunner::Failure::kReplicas,
                                             cause == Cause::kRequest ? &asked : nullptr,
                                             cause == Cause::kInterrupt ? &interrupted : nullptr);
    };
    EXPECT_THAT(std::string(Train(*job, options).status().message()), HasSubstr("W0757"));
    const std::vector<int64_t> steps = store::CommittedSteps(folder.PathFor("c"));
    EXPECT_EQ(steps.empty(), cause != Cause::kTime) << log.str();
    EXPECT_TRUE(steps.empty() || steps.back() < 5) << log.str();
  }
}

// Fails in a step, starts again, and is asked to end before the new start has done a step.
class InterruptedRestartTest : public ::testing::Test {
 protected:
  InterruptedRestartTest() {
    options_.console = &console_;
    options_.threads_per_device = 1;
    options_.save = folder_.PathFor("weights");
    options_.interrupted = &interrupted_;
    options_.so_far = &so_far_;
    options_.runner =
        [](const proto::Job& trained,
           const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
      absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(trained, options);
      if (!runner.ok()) return runner.status();
      return std::make_unique<FailingRunner>(*std::move(runner), 5, FailingRunner::Failure::kSteps);
    };
  }

  void FailOnce() {
    run_.emplace(options_.checkpoint);
    options_.folder = &*run_;
    EXPECT_EQ(Train(job_, options_).status().message(), "a step that failed");
    log_.str("");
    options_.resume = run_->GoBackToWhole().path;
  }
  TrainResult Run() {
    FailOnce();
    interrupted_ = true;
    return Train(job_, options_).value();
  }
  bool IsWritten() const { return std::ifstream(options_.save).good(); }

  const proto::Job job_ = JobOfTwoRanks(40).value();
  const TemporaryFolder folder_;
  std::ostringstream log_;
  console::Console console_{console::Console::Style::kPlain, &log_};
  std::atomic<bool> interrupted_ = false;
  std::optional<RunFolder> run_;
  RunSoFar so_far_;
  TrainOptions options_;
};

TEST_F(InterruptedRestartTest, ARequestForACheckpointIsAnsweredOnceOverAllStarts) {
  options_.checkpoint = folder_.PathFor("c") + "/";
  std::atomic<int> asked = 2;
  options_.checkpoints_asked = &asked;
  FailOnce();
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(Train(job_, options_).status().message(), "a step that failed");
  EXPECT_EQ(store::CommittedSteps(folder_.PathFor("c")).size(), 1u) << log_.str();
}

TEST_F(InterruptedRestartTest, TheRunHasTheStepsOfItsCheckpointAndSavesThem) {
  options_.checkpoint = folder_.PathFor("c") + "/";
  options_.checkpoint_every = 2;
  const TrainResult result = Run();
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.steps_done, 4);
  EXPECT_EQ(result.steps_here, 4);
  EXPECT_GT(result.seconds_here, 0);
  EXPECT_GT(result.last_loss, 0);
  EXPECT_THAT(log_.str(), HasSubstr("interrupted after step 4 of 40"));
  EXPECT_THAT(log_.str(), HasSubstr("the checkpoint of this step is " + options_.resume));
  EXPECT_THAT(log_.str(), HasSubstr("weights written to "));
  EXPECT_TRUE(IsWritten());
  EXPECT_EQ(store::CommittedSteps(folder_.PathFor("c")), (std::vector<int64_t>{2, 4}));
}

TEST_F(InterruptedRestartTest, AFileThatAnotherRunPutsThereAtOnceIsNotTakenForTheOwn) {
  TrainOptions other;
  other.console = &console_;
  other.threads_per_device = 1;
  other.checkpoint = folder_.PathFor("other");
  proto::Job other_job = job_;
  other_job.mutable_training()->set_steps(4);
  other_job.mutable_training()->set_seed(job_.training().seed() + 1);
  ASSERT_TRUE(Train(other_job, other).ok()) << log_.str();
  options_.checkpoint = folder_.PathFor("c");
  options_.checkpoint_every = 2;
  options_.runner =
      [&other](const proto::Job& trained,
               const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
    absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(trained, options);
    if (!runner.ok()) return runner.status();
    return std::make_unique<FailingRunner>(
        std::make_unique<ReplacedRunner>(*std::move(runner), other.checkpoint), 5,
        FailingRunner::Failure::kSteps);
  };
  FailOnce();
  EXPECT_EQ(options_.resume, "") << "the run has no checkpoint of its own left";
}

TEST_F(InterruptedRestartTest, ARecoveryFromFilesNamesTheCheckpointWithWhichTheStartBegan) {
  options_.checkpoint = folder_.PathFor("c") + "/";
  options_.checkpoint_every = 2;
  FailOnce();
  options_.checkpoint_every = 0;
  options_.may_recover = [this](int64_t /*steps_done*/) {
    interrupted_ = true;
    return true;
  };
  std::string text;
  options_.recovered = [&text](const RunRecovery& recovery) {
    text = recovery.text;
    return 0.25;
  };
  EXPECT_EQ(Train(job_, options_).value().steps_here, 4);
  EXPECT_THAT(text, HasSubstr("; all states come from " + options_.resume));
}

TEST_F(InterruptedRestartTest, ARecoveryFromFilesSaysWhichCheckpointSomebodyHasRemoved) {
  options_.checkpoint = folder_.PathFor("c") + "/";
  options_.checkpoint_every = 2;
  FailOnce();
  options_.checkpoint_every = 0;
  options_.may_recover = [this](int64_t /*steps_done*/) {
    std::filesystem::remove_all(options_.resume);
    return true;
  };
  // The states of this start are gone, so the processes have to start again.
  EXPECT_FALSE(Train(job_, options_).ok());
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: the checkpoint " + options_.resume +
                                    " is passed over: it is no longer there"));
  EXPECT_EQ(run_->GoBackToWhole().path, folder_.PathFor("c") + "/" + store::StepFolderName(2));
}

TEST_F(InterruptedRestartTest, ARecoveryFromFilesTakesNoCheckpointOfAnotherRun) {
  options_.checkpoint = folder_.PathFor("c") + "/";
  options_.checkpoint_every = 2;
  FailOnce();
  const std::string first = options_.resume;
  // A run that goes on from the checkpoint, and loses its ranks before it has one of its own.
  RunFolder second(folder_.PathFor("d") + "/");
  options_.folder = &second;
  options_.checkpoint = folder_.PathFor("d") + "/";
  options_.checkpoint_every = 0;
  options_.may_recover = [&](int64_t /*steps_done*/) {
    TrainOptions other = options_;
    other.folder = nullptr;
    other.checkpoint = folder_.PathFor("other") + "/";
    other.checkpoint_every = 4;
    other.resume.clear();
    other.may_recover = nullptr;
    other.so_far = nullptr;
    EXPECT_FALSE(Train(job_, other).ok());
    std::filesystem::remove_all(first);
    std::filesystem::rename(folder_.PathFor("other") + "/" + store::StepFolderName(4), first);
    return true;
  };
  EXPECT_THAT(Train(job_, options_).status().message(), HasSubstr("W0967 at " + first));
}

TEST_F(InterruptedRestartTest, WithoutACheckpointTheRunSaysThatItsStepsAreLost) {
  const TrainResult result = Run();
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.steps_here, 0);
  EXPECT_THAT(log_.str(), ::testing::ContainsRegex("step[s]* of this run [a-z]+ lost"));
  EXPECT_FALSE(IsWritten());
}

}  // namespace
}  // namespace weir::train
