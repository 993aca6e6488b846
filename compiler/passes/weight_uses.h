// Which calls of the model read a weight.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

// Marks the arguments that some node of the forward or backward function reads (in kGenerate, no
// node reads targets).
std::vector<char> ReadArgs(const Module& module, const ModelFunction& model_function);

// A use of a weight: parameter `parameter` of call `call`.
struct WeightUse {
  int call = 0;
  size_t parameter = 0;
};

// Returns the uses of each weight of the model, in the order of calls. Refuses two weights of one
// name (W0473), a moving average with several uses (W0317) and, in kTrain, a weight that is not
// frozen and has no gradient (W0475).
absl::StatusOr<std::vector<std::vector<WeightUse>>> FindWeightUses(const Module& module,
                                                                   PlanMode mode);

}  // namespace weir::compiler
