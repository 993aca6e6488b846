// What `weir plan` begins with: one screen that says whether the job fits, what a step is predicted
// to take and by whose costs, bytes and memory per device, stages and bubble, the costliest boxings
// with the rule behind them, and what looks wrong. Details are sections of their own
// (plan_sections.h). Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/predict_step.h"
#include "tools/train/memory_budget.h"

namespace weir {

inline constexpr int kScreenLines = 40;
inline constexpr int kScreenColumns = 100;

// At most kScreenLines lines of at most kScreenColumns characters; the first is about fit. `plan`
// is compiled with costs.model().
absl::StatusOr<std::string> PlanScreen(const LogicalPlan& plan, const JobCosts& costs,
                                       const StepPrediction& prediction,
                                       const NeedAndPlans& memory);

}  // namespace weir
