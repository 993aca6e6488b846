// Predicts the time of a step of a plan. The prediction simulates the step as `weir sim` does, with
// the same cluster and the same options, so `weir plan` and `weir sim` give the same time. If the
// simulator has no answer, the prediction uses the planned times and says why. Thread rule: pure
// functions.
#pragma once

#include <optional>
#include <string>

#include "compiler/compile.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/simulate.h"

namespace weir::sim {

struct StepPrediction {
  double step_ns = 0;                    // 0: no prediction
  std::optional<SimulateReport> report;  // of the simulation; none: the planned times are used
  std::string why_not;  // the reason for no report: "the cluster has 2 devices for 4 ranks"
};

// Precondition: `plan` was compiled with costs.model().
StepPrediction PredictStep(const compiler::LogicalPlan& plan, const JobCosts& costs);

}  // namespace weir::sim
