// Makes the rules of ops that work along some axes and leave the other axes alone (slice, pad,
// concat, reductions, their gradients). Thread rule: pure functions.
#pragma once

#include <vector>

#include "sbp/factor_rule.h"

namespace weir::ops {

// Returns a rule with one factor per axis, shared by all operands, which have equal rank. Along
// `axis` each operand has a whole factor of its own.
sbp::FactorRule WholeAxisRule(const std::vector<sbp::TensorType>& inputs,
                              const std::vector<sbp::TensorType>& outputs, int axis);

// Returns a rule in which every dimension of every operand is a whole factor of its own, so nothing
// is ever split.
sbp::FactorRule WholeRule(const std::vector<sbp::TensorType>& inputs,
                          const std::vector<sbp::TensorType>& outputs);

// Returns a rule with one factor per dimension of `full`, the larger operand. Operand types of
// smaller rank lack the dimensions `axes`.
sbp::FactorRule LackingAxesRule(const std::vector<sbp::TensorType>& inputs,
                                const std::vector<sbp::TensorType>& outputs,
                                const sbp::TensorType& full, const std::vector<int64_t>& axes);

}  // namespace weir::ops
