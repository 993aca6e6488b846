#include "tools/sim/predict_step.h"

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/base/problem.h"

namespace weir::sim {
namespace {

// The limit for the acts of all simulated ranks in a step. A play of more acts takes too long for a
// first look.
constexpr double kActsMax = 4e6;

// Returns whether the simulation of the plan ends soon.
bool IsQuick(const compiler::LogicalPlan& plan) {
  const absl::StatusOr<proto::RankPlan> first = compiler::LowerForRank(plan, RankId(0));
  if (!first.ok()) return false;
  double acts = 0;
  for (const proto::ActorSpec& actor : first->actor())
    acts += static_cast<double>(actor.rate().acts_per_step());
  const int64_t ranks = IsBySymmetry(plan) ? plan.places.size() : plan.places.num_ranks();
  return acts * static_cast<double>(ranks) <= kActsMax;
}

double PlannedStepNs(const compiler::LogicalPlan& plan) {
  return static_cast<double>(plan.rhythm.iteration_ns) /
         static_cast<double>(std::max<int64_t>(1, plan.updates.every));
}

std::string Found(const absl::Status& status) {
  const std::optional<Problem> problem = ProblemOf(status);
  return problem.has_value() ? FindingText(*problem) : std::string(status.message());
}

}  // namespace

StepPrediction PredictStep(const compiler::LogicalPlan& plan, const JobCosts& costs) {
  StepPrediction prediction;
  if (plan.mode != compiler::PlanMode::kTrain) {
    prediction.why_not = "only training is simulated";
  } else if (!IsQuick(plan)) {
    prediction.why_not = "the plan is large: `weir sim` takes the time to play it";
  } else if (absl::StatusOr<SimulateReport> report =
                 SimulatePlan(plan, costs.ClusterFor(plan.places.num_ranks()), {});
             report.ok()) {
    prediction.step_ns = report->step_ns;
    prediction.report = *std::move(report);
    return prediction;
  } else {
    prediction.why_not = Found(report.status());
  }
  prediction.step_ns = PlannedStepNs(plan);
  return prediction;
}

}  // namespace weir::sim
