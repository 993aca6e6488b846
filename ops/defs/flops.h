// Counts operations in ways that many ops share. Thread rule: pure functions.
#pragma once

#include <functional>
#include <vector>

#include "ops/defs/op_def.h"

namespace weir {

using FlopsFunction = std::function<double(const Attributes&, const std::vector<TensorType>&,
                                           const std::vector<TensorType>&)>;

// Counts `per_element` operations for each element of the first input.
inline FlopsFunction FlopsPerInput(double per_element) {
  return [per_element](const Attributes&, const std::vector<TensorType>& inputs,
                       const std::vector<TensorType>&) {
    return per_element * static_cast<double>(inputs[0].num_elements());
  };
}
// Counts `per_element` operations for each element of the first output.
inline FlopsFunction FlopsPerOutput(double per_element) {
  return [per_element](const Attributes&, const std::vector<TensorType>&,
                       const std::vector<TensorType>& outputs) {
    return per_element * static_cast<double>(outputs[0].num_elements());
  };
}
// Counts no operations, for an op that only moves elements.
inline FlopsFunction NoFlops() { return FlopsPerOutput(0); }

}  // namespace weir
