// The bytes that each boxing of a plan sends, and the reason for the boxing. Boxings that differ
// only in the layer or the stage count as one. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "runtime/base/ids.h"

namespace weir::plan {

struct BoxingCost {
  std::string name;     // "projected in block", "gradients of layers.0 and 3 more"
  std::string method;   // "all-reduce"
  std::string layouts;  // "[dp: S(0), tp: P(sum)] -> [dp: S(0), tp: B]"
  // The two stages of a boxing between stages, as "stage 0 -> 1". Empty: each stage does the boxing
  // for itself, and all stages count as one.
  std::string stages;
  // The reason for the layout in which the tensor arrives, on the axes that change, as
  // "rule heads -> tp". May be empty.
  std::string cause;
  int64_t times = 1;      // per step; of all boxings that count as one
  double bytes = 0;       // per step, over all links
  RankId from, to;        // of the busiest link; none: not known (large meshes)
  double link_bytes = 0;  // of that link, per step
  // Per step, over all links from host to host. 0 if there is one host, or if all stages have one
  // mesh, which is large and not cut evenly by hosts.
  double bytes_between_hosts = 0;
};

// Returns the boxings, the costliest first. If only some steps update weights, figures are means
// over the steps of an update.
absl::StatusOr<std::vector<BoxingCost>> CostsOfBoxings(const compiler::LogicalPlan& plan);

// A rule of the job that costs more than it saves: without the rule the job sends much less and is
// no slower.
struct CostlyRule {
  std::string rule;                                  // "hidden -> tp"
  double bytes = 0, bytes_without = 0;               // per step, over all links
  double step_ns = 0, step_ns_without = 0;           // predicted
  int64_t arena_bytes = 0, arena_bytes_without = 0;  // of rank 0
};

// Compiles the job once more without each rule that the mesh has an axis for. Does nothing for a
// job for which that would take long. `step_ns_of` predicts the time of a step of a plan; 0: no
// prediction.
std::vector<CostlyRule> FindCostlyRules(
    const compiler::LogicalPlan& plan, const compiler::CostModel& costs,
    const std::function<double(const compiler::LogicalPlan& plan)>& step_ns_of);

}  // namespace weir::plan
