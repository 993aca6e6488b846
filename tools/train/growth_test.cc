// Tests when a run lets its mesh grow, and what becomes of its steps.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <sstream>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/train/forwarding_runner_testing.h"
#include "tools/train/trainer.h"
#include "tools/zoo/gpt.h"

namespace weir::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kSteps = 12;
using Mesh = RecoveryOrder::Mesh;

// An Asked has the requests that a GrowingRunner got, and the faults that it plays.
struct Asked {
  std::vector<Mesh> meshes;             // of each Recover
  std::vector<int64_t> steps;           // done at each of these
  std::vector<const proto::Job*> jobs;  // of each of these
  absl::Status ready;                   // of PrepareToGrow
  absl::Status grown;                   // of Recover with Mesh::kGrows
};

// Keeps its ranks, whatever the mesh is.
class GrowingRunner final : public ForwardingRunner {
 public:
  GrowingRunner(std::unique_ptr<JobRunner> runner, int64_t first_step, Asked* asked)
      : ForwardingRunner(std::move(runner)), asked_(*asked), steps_(first_step) {}
  int64_t StepsToNextCopy() const override { return 2; }  // so that bursts are short
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    steps_ += steps;
    return ForwardingRunner::RunSteps(steps);
  }
  absl::Status PrepareToGrow() override { return asked_.ready; }
  absl::StatusOr<Recovery> Recover(const RecoveryOrder& order) override {
    asked_.meshes.push_back(order.mesh);
    asked_.steps.push_back(steps_);
    asked_.jobs.push_back(order.job);
    if (order.mesh == Mesh::kGrows && !asked_.grown.ok()) return asked_.grown;
    return Recovery{steps_, true, "they are back", {}};
  }

 private:
  Asked& asked_;
  int64_t steps_;
};

proto::Job SmallJob(int64_t steps) {
  zoo::TransformerOptions small;
  small.layers = 2;
  small.hidden = 16;
  small.heads = 2;
  small.sequence = 8;
  small.training.batch = 8;
  small.training.steps = steps;
  return zoo::GptJob(small).value();
}

class GrowthTest : public ::testing::Test {
 protected:
  GrowthTest() {
    options_.console = &console_;
    options_.threads_per_device = 1;
    options_.metrics = folder_.PathFor("metrics");
    options_.runner =
        [this](const proto::Job& job,
               const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
      absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(job, options);
      if (!runner.ok()) return runner.status();
      return std::make_unique<GrowingRunner>(*std::move(runner), options.first_step, &asked_);
    };
    options_.may_grow = [this] { return ++turns_ == 3; };
    options_.larger_job = [this] {
      ++num_begun_;
      return &larger_;
    };
    options_.growth_refused = [this] { ++num_refused_; };
    options_.may_recover = [this](int64_t /*steps_done*/) {
      ++num_losses_;
      return true;
    };
    options_.recovered = [this](const RunRecovery& recovery) {
      recoveries_.push_back(recovery);
      return 0.25;
    };
  }

  void Run(int64_t update_every = 1) {
    proto::Job job = SmallJob(kSteps);
    if (update_every > 1) job.mutable_training()->set_update_every(update_every);
    larger_ = job;
    const absl::StatusOr<TrainResult> result = Train(job, options_);
    ASSERT_TRUE(result.ok()) << result.status() << "\n" << log_.str();
    EXPECT_EQ(result->steps_done, kSteps);
    std::vector<int64_t> steps;
    std::ifstream lines(options_.metrics);
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json row = nlohmann::json::parse(line);
      steps.push_back(row["step"]);
      if (row.contains("growth_seconds")) rows_of_growths_.push_back(row["step"]);
      if (row.contains("recovery_seconds")) rows_of_recoveries_.push_back(row["step"]);
    }
    std::vector<int64_t> all(kSteps);
    std::iota(all.begin(), all.end(), 1);
    EXPECT_EQ(steps, all) << "each step has one row";
  }

  const TemporaryFolder folder_;
  std::ostringstream log_;
  console::Console console_{console::Console::Style::kPlain, &log_};
  TrainOptions options_;
  Asked asked_;
  proto::Job larger_;
  int turns_ = 0, num_begun_ = 0, num_refused_ = 0, num_losses_ = 0;
  std::vector<RunRecovery> recoveries_;
  std::vector<int64_t> rows_of_growths_, rows_of_recoveries_;
};

TEST_F(GrowthTest, AMeshGrowsOnceBetweenTwoStepsAndNoStepIsDoneAgain) {
  Run();
  EXPECT_THAT(asked_.meshes, ElementsAre(Mesh::kGrows));
  EXPECT_THAT(asked_.jobs, ElementsAre(&larger_));
  EXPECT_EQ(num_begun_, 1);
  EXPECT_EQ(num_losses_, 0);
  ASSERT_EQ(recoveries_.size(), 1u);
  EXPECT_TRUE(recoveries_[0].is_growth);
  EXPECT_TRUE(recoveries_[0].has_step);
  EXPECT_EQ(recoveries_[0].steps_lost, 0);
  EXPECT_EQ(recoveries_[0].step, asked_.steps[0]);
  EXPECT_EQ(rows_of_growths_.size(), 1u);
  EXPECT_THAT(rows_of_recoveries_, IsEmpty());
  EXPECT_THAT(log_.str(), Not(HasSubstr("WARNING")));
}

TEST_F(GrowthTest, GradientsThatAreGatheredAreNotLost) {
  for (const int turn : {1, 2, 3}) {
    asked_ = Asked();
    turns_ = 3 - turn;  // the turn comes at this question
    Run(/*update_every=*/3);
    EXPECT_EQ(asked_.meshes.size(), 1u);
    for (const int64_t step : asked_.steps) EXPECT_EQ(step % 3, 0);
  }
}

TEST_F(GrowthTest, ARunWhoseStatesDoNotOutliveALossStaysAsItIs) {
  asked_.ready = absl::ResourceExhaustedError("no memory for a copy");
  Run();
  EXPECT_THAT(asked_.meshes, IsEmpty());
  EXPECT_EQ(num_begun_, 0);
  EXPECT_THAT(recoveries_, IsEmpty());
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: the mesh does not grow now: no memory for a copy"));
}

// The job or the processes may forbid it: another process has deleted the data, or a place is gone.
TEST_F(GrowthTest, AMeshThatCannotBeginToGrowStaysAsItIsAndSaysWhy) {
  for (const bool is_job : {true, false}) {
    SCOPED_TRACE(is_job ? "the job cannot be prepared" : "no epoch can begin");
    asked_ = Asked();
    turns_ = num_begun_ = num_refused_ = 0;
    asked_.grown = absl::FailedPreconditionError("no worker can come back");
    options_.larger_job = [this, is_job] {
      ++num_begun_;
      if (is_job) larger_.mutable_graph()->set_main("nothing");
      return &larger_;
    };
    Run();
    EXPECT_EQ(asked_.meshes.size(), is_job ? 0u : 1u);
    EXPECT_EQ(num_begun_, 1);
    EXPECT_EQ(num_refused_, 1);
    EXPECT_EQ(num_losses_, 0);
    EXPECT_THAT(recoveries_, IsEmpty());
    EXPECT_THAT(log_.str(), HasSubstr(is_job ? "WARNING: the mesh does not grow now: W"
                                             : "WARNING: the mesh does not grow now: no worker"));
  }
}

TEST_F(GrowthTest, ALossWhileTheMeshGrowsIsALossAsAnyOther) {
  asked_.grown = absl::UnavailableError("a new process was lost");
  Run();
  EXPECT_THAT(asked_.meshes, ElementsAre(Mesh::kGrows, Mesh::kStays));
  EXPECT_EQ(num_losses_, 1);
  ASSERT_EQ(recoveries_.size(), 1u);
  EXPECT_FALSE(recoveries_[0].is_growth);
  EXPECT_THAT(rows_of_growths_, IsEmpty());
  EXPECT_EQ(rows_of_recoveries_.size(), 1u);
}

TEST_F(GrowthTest, ALossWhileStatesAreMadeToLastIsALossAsAnyOther) {
  asked_.ready = absl::UnavailableError("a process was lost");
  Run();
  EXPECT_THAT(asked_.meshes, ElementsAre(Mesh::kStays));
  EXPECT_EQ(num_begun_, 0);
  EXPECT_EQ(num_losses_, 1);
}

// --keep removes old checkpoints, also the one that the run has resumed.
TEST_F(GrowthTest, AMeshChangesThoughTheCheckpointThatTheRunResumedIsGone) {
  const std::string checkpoint = folder_.PathFor("resumed");
  TrainOptions earlier;
  earlier.console = &console_;
  earlier.threads_per_device = 1;
  earlier.metrics = options_.metrics;
  earlier.checkpoint = checkpoint;
  ASSERT_TRUE(Train(SmallJob(4), earlier).ok()) << log_.str();
  options_.resume = checkpoint;
  options_.may_grow = [this, checkpoint] {
    std::filesystem::remove(checkpoint);
    return ++turns_ == 3;
  };
  Run();
  EXPECT_FALSE(std::filesystem::exists(checkpoint));
  EXPECT_THAT(asked_.meshes, ElementsAre(Mesh::kGrows));
  EXPECT_EQ(rows_of_growths_.size(), 1u);
}

}  // namespace
}  // namespace weir::train
