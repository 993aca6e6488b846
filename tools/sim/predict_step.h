// What a step of a plan is predicted to take: simulated, as `weir sim` does, with the same cluster
// and the same options, so that `weir plan` and `weir sim` say the same. Where the simulator cannot
// tell, the planned times stand in, and the prediction says why. Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>

#include "compiler/compile.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/simulate.h"

namespace weir {

struct StepPrediction {
  double step_ns = 0;                    // 0: neither could tell
  std::optional<SimulateReport> report;  // of the simulation; none: by the planned times
  std::string why_not;                   // then the reason, "the cluster has 2 devices for 4 ranks"
};

// `plan` is compiled with costs.model().
StepPrediction PredictStep(const LogicalPlan& plan, const JobCosts& costs);

}  // namespace weir
