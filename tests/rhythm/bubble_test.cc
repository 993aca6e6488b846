// Tests that the predicted bubble is the bubble of a run with the same costs, and compares
// zero-bubble with 1F1B on uneven stages.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"
#include "tests/rhythm/rhythm_jobs.h"
#include "tests/rhythm/virtual_step.h"

namespace weir::rhythm {
namespace {

using weir::proto::Pipeline;

const std::vector<proto::Pipeline::ScheduleKind> kAll = {
    proto::Pipeline::GPIPE, proto::Pipeline::ONE_F_ONE_B, proto::Pipeline::INTERLEAVED,
    proto::Pipeline::ZERO_BUBBLE};

proto::Job WithSchedule(proto::Job job, proto::Pipeline::ScheduleKind kind) {
  job.mutable_pipeline()->set_schedule(kind);
  return job;
}

proto::Job CutAt(proto::Job job, const std::vector<int>& layers) {
  for (int layer : layers) job.mutable_pipeline()->add_cut(absl::StrCat("layers.", layer));
  return job;
}

TEST(BubbleTest, WhatIsPredictedIsTheBubbleOfARunWithTheSameCosts) {  // within 1 % of the step
  for (const proto::Pipeline::ScheduleKind kind : kAll) {
    const bool interleaved = kind == proto::Pipeline::INTERLEAVED;
    const std::vector<std::pair<std::string, proto::Job>> jobs = {
        {"even",
         CutAt(SmallGptJob("pp=4", 16, 8), interleaved ? std::vector<int>{2, 4, 6, 8, 10, 12, 14}
                                                       : std::vector<int>{4, 8, 12})},
        {"uneven",
         CutAt(SmallGptJob("pp=4", 16, 8),
               interleaved ? std::vector<int>{1, 5, 6, 8, 9, 12, 15} : std::vector<int>{2, 9, 11})},
        {"by itself", SmallGptJob("pp=3", 7, 9)},
    };
    for (const auto& [name, even] : jobs) {
      const proto::Job job = WithSchedule(even, kind);
      const absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
          compiler::CompileJob(job, {});
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_NEAR((*plan)->predicted_bubble, PlayJob(job, 4).bubble, 0.01)
          << proto::Pipeline::ScheduleKind_Name(kind) << ", " << name;
      EXPECT_GT((*plan)->predicted_bubble, 0.01);
    }
  }
}

// Exchanges of gradients come between acts, at a different time on each rank of a stage.
TEST(BubbleTest, WithDataParallelismThePredictionIsNear) {
  for (const proto::Pipeline::ScheduleKind kind : kAll) {
    const proto::Job job = WithSchedule(SmallGptJob("pp=2,dp=2", 6, 4), kind);
    const absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
        compiler::CompileJob(job, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_NEAR((*plan)->predicted_bubble, PlayJob(job, 4).bubble, 0.04)
        << proto::Pipeline::ScheduleKind_Name(kind);
  }
}

// Returns act costs: per block one unit each for the forward pass, for gradients of inputs and for
// gradients of weights, times a factor of the stage.
ActCost CostOfStages(const std::vector<double>& factors) {
  return [factors](const actors::Plan& plan, const actors::PlanActor& actor) -> int64_t {
    constexpr double kUnit = 1000;
    if (!absl::StrContains(actor.function, "layers.")) return 0;
    double units = actor.phase == actors::ActorPhase::kForward ||
                           actor.phase == actors::ActorPhase::kWeightGradient
                       ? 1
                       : 0;
    if (actor.phase == actors::ActorPhase::kBackward) {
      const bool split =
          std::any_of(plan.actors.begin(), plan.actors.end(), [&](const actors::PlanActor& other) {
            return other.phase == actors::ActorPhase::kWeightGradient &&
                   other.instance == actor.instance;
          });
      units = split ? 1 : 2;
    }
    return std::llround(units * kUnit * factors[plan.stage]);
  };
}

// Cuts and speeds of stages are random. If the fullest stage is a late stage, zero-bubble takes
// more memory, because it keeps as much on every stage as 1F1B keeps on the first.
TEST(BubbleTest, ZeroBubbleIsHardlyEverSlowerThan1F1BWhereStagesAreUneven) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    auto next = [seed, n = uint64_t{0}]() mutable { return UniformAt(seed, n++); };
    const int stages = 2 + static_cast<int>(next() * 5),
              micro_batches = stages + static_cast<int>(next() * 2 * stages);
    const int layers = 3 * stages;
    std::vector<int> cuts;
    while (static_cast<int>(cuts.size()) < stages - 1) {
      const int cut = 1 + static_cast<int>(next() * (layers - 1));
      if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
    }
    std::sort(cuts.begin(), cuts.end());
    std::vector<double> factors;
    for (int s = 0; s < stages; ++s) factors.push_back(0.5 + 1.5 * next());
    const proto::Job job =
        CutAt(SmallGptJob(absl::StrCat("pp=", stages), layers, micro_batches), cuts);
    const VirtualStep straight =
        PlayJob(WithSchedule(job, proto::Pipeline::ONE_F_ONE_B), 3, CostOfStages(factors));
    const VirtualStep split =
        PlayJob(WithSchedule(job, proto::Pipeline::ZERO_BUBBLE), 3, CostOfStages(factors));
    const double ratio =
        static_cast<double>(split.all_steps_ns) / static_cast<double>(straight.all_steps_ns);
    EXPECT_LE(ratio, 1.03) << "seed " << seed << ": " << stages << " stages x " << micro_batches;
  }
}

TEST(BubbleTest, ZeroBubbleIsBelowHalfOf1F1BWhereStagesAreEven) {
  for (int stages : {2, 3, 4, 6}) {
    const proto::Job job = SmallGptJob(absl::StrCat("pp=", stages), 4 * stages, 3 * stages);
    std::vector<int> cuts;
    for (int s = 1; s < stages; ++s) cuts.push_back(4 * s);
    const std::vector<double> even(stages, 1);
    const VirtualStep straight = PlayJob(
        WithSchedule(CutAt(job, cuts), proto::Pipeline::ONE_F_ONE_B), 3, CostOfStages(even));
    const VirtualStep split = PlayJob(WithSchedule(CutAt(job, cuts), proto::Pipeline::ZERO_BUBBLE),
                                      3, CostOfStages(even));
    EXPECT_LT(split.bubble, straight.bubble / 2) << stages << " stages";
    EXPECT_LT(split.all_steps_ns, straight.all_steps_ns) << stages << " stages";
  }
}

}  // namespace
}  // namespace weir::rhythm
