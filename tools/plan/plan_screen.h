// The first screen of `weir plan`: whether the job fits, the predicted time of a step and the
// source of the costs, bytes and memory per device, stages and bubble, the costliest boxings with
// their rules, and signs of trouble. Details are separate sections (plan_sections.h). Thread rule:
// pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "tools/plan/place_axes.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/predict_step.h"
#include "tools/train/memory_budget.h"

namespace weir::plan {

inline constexpr int kScreenLines = 40;
inline constexpr int kScreenColumns = 100;

// Returns at most kScreenLines lines of at most kScreenColumns characters. The first line is about
// fit. `placed` says how the order of ranks in plan.job came about. Precondition: `plan` was
// compiled with costs.model().
absl::StatusOr<std::string> PlanScreen(const compiler::LogicalPlan& plan,
                                       const sim::JobCosts& costs,
                                       const sim::StepPrediction& prediction,
                                       const train::NeedAndPlans& memory,
                                       const PlacedAxes& placed = {});

}  // namespace weir::plan
