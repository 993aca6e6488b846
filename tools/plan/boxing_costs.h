// What each boxing of a plan sends, and why it is there. Boxings that differ in the layer or the
// stage alone count as one. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"

namespace weir {

struct BoxingCost {
  std::string name;     // "projected in block", "gradients of layers.0 and 3 more"
  std::string method;   // "all-reduce"
  std::string layouts;  // "[dp: S(0), tp: P(sum)] -> [dp: S(0), tp: B]"
  std::string stages;   // between stages, "stage 0 -> 1"; else empty: what each stage does for
                        // itself counts as one
  std::string cause;  // "rule heads -> tp": why the tensor has the layout it comes in, on the axes
                      // that change; may be empty
  int64_t times = 1;  // per step; of all that count as one
  double bytes = 0;   // per step, over all links
  int64_t from = -1, to = -1;  // the ranks of the busiest link; -1: not known (large meshes)
  double link_bytes = 0;       // of that link, per step
};

// The costliest first. Where not all steps update weights, figures are means over the steps of an
// update.
absl::StatusOr<std::vector<BoxingCost>> CostsOfBoxings(const LogicalPlan& plan);

// A rule of the job that costs more than it brings: without it the job sends much less and is no
// slower.
struct CostlyRule {
  std::string rule;                                  // "hidden -> tp"
  double bytes = 0, bytes_without = 0;               // per step, over all links
  double step_ns = 0, step_ns_without = 0;           // predicted
  int64_t arena_bytes = 0, arena_bytes_without = 0;  // of rank 0
};

// Compiles the job once more without each rule that the mesh has an axis for; nothing is looked at
// where that would take long. `step_ns_of` predicts a step of a plan; 0: it cannot.
std::vector<CostlyRule> FindCostlyRules(
    const LogicalPlan& plan, const compiler::CostModel& costs,
    const std::function<double(const LogicalPlan& plan)>& step_ns_of);

}  // namespace weir
