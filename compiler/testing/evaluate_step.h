// Computes what the functions of a model mean, in doubles and without devices: the logical value of
// each tensor, whatever its layout. So a boxing is the identity and a cast does not round. A pass
// that only rearranges a model must leave the outcome of a step as it is, and a gradient must be
// the slope of the loss. Only the ops of the tests are known here; another op fails the test.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"

namespace weir::compiler {

using Numbers = std::vector<double>;  // of a tensor, row by row

// Returns the numbers of every value of the function. `args` are the numbers of its arguments.
std::vector<Numbers> EvaluateFunction(const Function& function, const std::vector<Numbers>& args);

struct StepInputs {
  std::map<std::string, Numbers> data;     // by name
  std::map<std::string, Numbers> weights;  // by "call.parameter"
};

// Returns random real data and weights from -1 to 1, and random classes.
StepInputs RandomInputs(const Module& module, uint64_t seed);

struct StepOutcome {
  double loss = 0;
  std::map<std::string, Numbers> gradients;  // by "call.parameter"
  friend bool operator==(const StepOutcome&, const StepOutcome&) = default;
};

// Runs the calls of the model forward, and then their backward and weight gradient functions, so
// far as the model has them. The gradient of a model value is the sum over its readers.
StepOutcome EvaluateStep(const Module& module, const StepInputs& inputs);

}  // namespace weir::compiler
