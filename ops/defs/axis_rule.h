// Rules of ops that work along some axes and leave the others alone (slice, pad,
// concat, reductions, their gradients). Thread rule: pure functions.
#pragma once

#include <vector>

#include "sbp/factor_rule.h"

namespace weir {

// One factor per axis shared by all operands, which have equal rank; along `axis` each operand
// has a whole factor of its own.
FactorRule WholeAxisRule(const std::vector<TensorType>& inputs,
                         const std::vector<TensorType>& outputs, int axis);

// Every dimension of every operand is a whole factor of its own: nothing is ever split.
FactorRule WholeRule(const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs);

// One factor per dimension of `full`, the larger operand; operand types whose rank is smaller
// lack the dimensions `axes`.
FactorRule LackingAxesRule(const std::vector<TensorType>& inputs,
                           const std::vector<TensorType>& outputs, const TensorType& full,
                           const std::vector<int64_t>& axes);

}  // namespace weir
