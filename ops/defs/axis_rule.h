// Makes the rules of ops that work along some axes and leave the other axes alone (slice, pad,
// concat, reductions, their gradients). Thread rule: pure functions.
#pragma once

#include <vector>

#include "sbp/factor_rule.h"

namespace weir {

// Returns a rule with one factor per axis, shared by all operands, which have equal rank. Along
// `axis` each operand has a whole factor of its own.
FactorRule WholeAxisRule(const std::vector<TensorType>& inputs,
                         const std::vector<TensorType>& outputs, int axis);

// Returns a rule in which every dimension of every operand is a whole factor of its own, so nothing
// is ever split.
FactorRule WholeRule(const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs);

// Returns a rule with one factor per dimension of `full`, the larger operand. Operand types of
// smaller rank lack the dimensions `axes`.
FactorRule LackingAxesRule(const std::vector<TensorType>& inputs,
                           const std::vector<TensorType>& outputs, const TensorType& full,
                           const std::vector<int64_t>& axes);

}  // namespace weir
