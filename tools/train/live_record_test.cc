// Tests what a training leaves in the record of its run: the parts of its steps, what it takes of
// the peak, and what goes on before the first step.
#include <unistd.h>

#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/job/job_file.h"
#include "tools/live/live_reader.h"
#include "tools/train/memory_budget.h"
#include "tools/train/trainer.h"
#include "tools/zoo/gpt.h"

namespace weir::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;

proto::Job SmallGpt(const std::string& mesh) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 32;
  options.sequence = 32;
  options.training.steps = 20;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job::SetMesh(mesh, &*job).ok());
  return *job;
}

class LiveRecordTest : public ::testing::Test {
 protected:
  LiveRecordTest() {
    options_.console = &console_;
    options_.live = &live_;
    options_.threads_per_device = 1;
  }
  live::LiveState State() const {
    const auto reader = live::LiveReader::Open(::getpid());
    EXPECT_TRUE(reader.ok()) << reader.status();
    const absl::StatusOr<live::LiveState> state = (*reader)->State();
    EXPECT_TRUE(state.ok()) << state.status();
    return *state;
  }

  MonotonicClock clock_;
  live::LiveRun live_{"small", &clock_};
  std::ostringstream log_;
  console::Console console_{console::Console::Style::kPlain, &log_, [] { return 0; }};
  TrainOptions options_;
};

TEST_F(LiveRecordTest, AStepIsDividedByCauseAndComparedWithThePeak) {
  DevicesInUse asked;
  options_.find_peak = [&asked](const DevicesInUse& devices) {
    asked = devices;
    return PeakArithmetic{1e12, "a test"};
  };
  const absl::StatusOr<TrainResult> result = Train(SmallGpt("dp=2"), options_);
  ASSERT_TRUE(result.ok()) << result.status() << log_.str();
  EXPECT_EQ(asked.ranks, 2);
  EXPECT_EQ(asked.threads_per_device, 1);
  const live::LiveState state = State();
  EXPECT_EQ(state.peak_flops, 1e12);
  EXPECT_EQ(state.peak_from, "a test");
  EXPECT_THAT(state.bytes_of_rank, AllOf(testing::SizeIs(2), Each(Gt(0))));
  EXPECT_NEAR(state.step.mfu, state.flops_per_step / (state.step.step_seconds * 1e12), 1e-9);
  ASSERT_EQ(state.step.parts.size(), live::kStepParts.size());
  EXPECT_NEAR(std::accumulate(state.step.parts.begin(), state.step.parts.end(), 0.0), 1, 1e-3);
  EXPECT_GT(state.step.parts[0], 0.01) << "it computes";
  EXPECT_GT(state.step.parts[1], 0) << "it packs gradients";
}

TEST_F(LiveRecordTest, BeforeTheRanksAreLoadedTheRecordSaysSo) {
  std::string doing;
  options_.runner = [&](const proto::Job& job, const RunnerOptions& options) {
    doing = State().doing.what;
    return LocalRunner::Open(job, options);
  };
  EXPECT_TRUE(Train(SmallGpt(""), options_).ok()) << log_.str();
  EXPECT_EQ(doing, "loading the ranks");
  EXPECT_EQ(State().doing.what, "") << "it trains";
}

TEST_F(LiveRecordTest, PassesAndRanksAreToldAsTheyBegin) {
  std::vector<std::string> told;
  const auto tell = [&told](const live::Doing& doing) {
    told.push_back(doing.what);
    EXPECT_LT(doing.done, doing.of) << doing.what;
  };
  const absl::StatusOr<TrainingPlans> plans =
      CompileTraining(SmallGpt("dp=2"), nullptr, nullptr, tell);
  ASSERT_TRUE(plans.ok()) << plans.status();
  EXPECT_EQ(told.size(), plans->training->timings.size());
  EXPECT_EQ(told.front(), "compiler pass import-graph of the training plan");
  EXPECT_THAT(told, Contains(HasSubstr("pass solve-rhythm of the training plan, ")));
  told.clear();
  ASSERT_TRUE(NeedOf(*plans, 1, tell).ok());
  EXPECT_EQ(told.size(), 2u) << "a line for each rank";
}

}  // namespace
}  // namespace weir::train
