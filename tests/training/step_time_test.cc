// Tests that a step has one length, whatever reports it: on every layout the steps of a trace add
// up to the time of the run, the path of each step is as long as the step, and a replay takes the
// same time. The tests run in virtual time, so the lengths are equal to the nanosecond.
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/session/session.h"
#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/trace/step_times.h"
#include "tools/trace/trace_report.h"
#include "tools/trace/why_slow.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kNear = 0.01;
// Messages that no act waited for have estimated times.
constexpr double kReplayNear = 0.05;

struct PlayedRun {
  trace::TraceReader trace;
  int64_t wall_ns = 0;
};

// All acts take the time that the plan was made with, and messages take some time.
PlayedRun Play(const proto::Job& job, int64_t steps) {
  PlayedRun played;
  const absl::StatusOr<std::vector<proto::RankPlan>> plans = CompileForAllRanks(job);
  EXPECT_TRUE(plans.ok()) << plans.status();
  if (!plans.ok()) return played;
  const std::unique_ptr<actors::DataFeed> feed = RepeatingFeed(job);
  actors::SessionOptions options = VirtualTimeOptions(feed.get());
  options.sim_latency_ns = [](int64_t bytes, RankId, RankId) -> int64_t {
    return 5000 + bytes / 4;
  };
  const absl::StatusOr<std::unique_ptr<actors::Session>> session =
      actors::Session::Create(*plans, options);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return played;
  EXPECT_EQ((*session)->RunSteps(steps), absl::OkStatus());
  played.wall_ns = (*session)->simulator()->now_ns();
  std::stringstream file;
  EXPECT_EQ((*session)->WriteTrace(file, {}), absl::OkStatus());
  EXPECT_EQ(played.trace.Read(file.str()), absl::OkStatus());
  return played;
}

void ExpectOneLength(const PlayedRun& played, int64_t steps) {
  const trace::StepTimes times = trace::FindStepTimes(played.trace);
  ASSERT_EQ(times.steps.size(), static_cast<size_t>(steps));
  const double wall = static_cast<double>(played.wall_ns);
  EXPECT_NEAR(static_cast<double>(times.SumFrom(0)) / wall, 1, kNear);
  const double steady = static_cast<double>(times.SumFrom(1)) / static_cast<double>(steps - 1);
  EXPECT_NEAR(trace::MakeTraceReport(played.trace).step_ns / steady, 1, 1e-9);
  double paths = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const absl::StatusOr<trace::WhySlow> why =
        trace::FindWhySlow(played.trace, {.step = step, .what_ifs = {"link:all=1"}});
    ASSERT_TRUE(why.ok()) << why.status();
    EXPECT_NEAR(why->path.step_ns, static_cast<double>(times.steps[step].ns()), 1)
        << "step " << step;
    EXPECT_NEAR(why->recorded_step_ns / steady, 1, 1e-9);
    EXPECT_NEAR(why->replayed_step_ns / why->recorded_step_ns, 1, kReplayNear);
    paths += why->path.step_ns;
    // Repeated work takes the same time again: no step borrows from its neighbours. The first step
    // overlaps with no step before it, and the last step with no step after it, so both may differ.
    if (step > 0 && step + 1 < steps) {
      EXPECT_NEAR(static_cast<double>(times.steps[step].ns()) / steady, 1, 0.1) << "step " << step;
    }
  }
  EXPECT_NEAR(paths / wall, 1, kNear);
}

TEST(StepTime, TheStepsOfARunAddUpToItsTimeOnEveryLayout) {
  for (const Layout& layout : LayoutMatrix()) {
    SCOPED_TRACE(NameOf(layout));
    const absl::StatusOr<proto::Job> job = JobOn(layout, zoo::GptJob, SmallTransformer());
    ASSERT_TRUE(job.ok()) << job.status();
    ExpectOneLength(Play(*job, kSteps), kSteps);
  }
}

TEST(StepTime, StepsThatUpdateNothingHaveALengthToo) {
  absl::StatusOr<proto::Job> job = zoo::GptJob(SmallTransformer());
  ASSERT_TRUE(job.ok()) << job.status();
  for (int64_t delay : {0, 1}) {
    job->mutable_training()->set_update_every(2);
    job->mutable_training()->set_gradient_delay(delay);
    const PlayedRun played = Play(WithMesh(*job, "dp=2"), 8);
    const trace::StepTimes times = trace::FindStepTimes(played.trace);
    ASSERT_EQ(times.steps.size(), 8u);
    // The wall time includes the last messages, which come after the last act.
    EXPECT_NEAR(static_cast<double>(times.SumFrom(0)) / static_cast<double>(played.wall_ns), 1,
                2 * kNear);
    for (const trace::StepTime& step : times.steps) EXPECT_GT(step.ns(), 0) << step.step;
  }
}

}  // namespace
}  // namespace weir::training
