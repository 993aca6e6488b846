// Counts operations in ways that many ops share. Thread rule: pure functions.
#pragma once

#include <functional>
#include <vector>

#include "ops/defs/op_def.h"

namespace weir::ops {

using FlopsFunction = std::function<double(const Attributes&, const std::vector<sbp::TensorType>&,
                                           const std::vector<sbp::TensorType>&)>;

// Counts `per_element` operations for each element of the first input.
inline FlopsFunction FlopsPerInput(double per_element) {
  return [per_element](const Attributes&, const std::vector<sbp::TensorType>& inputs,
                       const std::vector<sbp::TensorType>&) {
    return per_element * static_cast<double>(inputs[0].num_elements());
  };
}
// Counts `per_element` operations for each element of the first output.
inline FlopsFunction FlopsPerOutput(double per_element) {
  return [per_element](const Attributes&, const std::vector<sbp::TensorType>&,
                       const std::vector<sbp::TensorType>& outputs) {
    return per_element * static_cast<double>(outputs[0].num_elements());
  };
}
// Counts no operations, for an op that only moves elements.
inline FlopsFunction NoFlops() { return FlopsPerOutput(0); }

}  // namespace weir::ops
