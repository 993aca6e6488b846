// The figures and sentences of a plan that its first screen (plan_screen.h), its JSON (plan_json.h)
// and the page of `weir view` share: whether the job fits, the predicted time of a step and the
// source of the costs, memory, bytes, boxings and signs of trouble. Thread rule: pure functions,
// but for the facts about this machine's memory and cores.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "runtime/base/ids.h"
#include "tools/plan/boxing_costs.h"
#include "tools/plan/place_axes.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/predict_step.h"
#include "tools/train/memory_budget.h"

namespace weir::plan {

// Sentences are lines for people, without a newline.
struct PlanSummary {
  std::string fit;  // "fits: all 4 ranks need 166.7 MiB of the 23.5 GiB of this machine; ..."
  bool fits = false;
  double device_bytes_max = 0;      // the limit of a device; 0: the limit is that of the machine
  std::string job;                  // "gpt: 2.8M parameters on 4 devices (dp=2,tp=2), ..."
  std::string precision;            // "bf16; f32 in 24 of 60 operations: ..."; empty: no such rules
  std::string step;                 // "18.2 ms, 56,265 tokens/s, simulated with the costs of ..."
  std::string time;                 // the parts of the predicted step; empty: it was not simulated
  std::string memory;               // of the fullest rank, by purpose
  std::string bytes;                // that a step sends
  std::string hosts;                // empty: the plan knows of one host
  double bytes_per_step = 0;        // over all links
  std::vector<BoxingCost> boxings;  // the costliest first
  std::vector<std::string> warnings;  // the gravest first
  // A device of the simulation. The shares of its step sum to 1.
  struct Device {
    RankId rank;
    std::string name;
    double compute = 0, transfer = 0, waiting = 0;
    double bytes = 0;  // as `memory` counts them: with the evaluation and the workspace of kernels
  };
  std::vector<Device> devices;  // empty: the step was not simulated
};

// `placed` says how the order of ranks in plan.job came about. Precondition: `plan` was compiled
// with costs.model().
absl::StatusOr<PlanSummary> Summarize(const compiler::LogicalPlan& plan, const sim::JobCosts& costs,
                                      const sim::StepPrediction& prediction,
                                      const train::NeedAndPlans& memory, const PlacedAxes& placed);

}  // namespace weir::plan
