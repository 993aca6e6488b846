// What the ops share whose operands are aligned at their last dimensions: each dimension of the
// result is that of every operand, unless the operand lacks the dimension or has size 1 there.
// Along such a dimension the operand repeats. Thread rule: pure functions; SetRepeatedGrad as
// GradientBuilder.
#pragma once

#include <vector>

#include "ops/defs/op_def.h"
#include "ops/defs/operand_check.h"

namespace weir::ops {

// States that any two of the first `count` operands fit (OperandCheck::Broadcast).
OperandCheck& CheckBroadcast(OperandCheck& check, int count);

// Returns the dimensions of the result. Precondition: the operands fit.
std::vector<sbp::TensorDim> BroadcastDims(const std::vector<sbp::TensorType>& operands);

// Returns a rule with one factor per dimension of output 0, the only output. An operand that
// repeats along a dimension does not have its factor.
sbp::FactorRule BroadcastRule(const std::vector<sbp::TensorType>& inputs,
                              const std::vector<sbp::TensorType>& outputs);

// Sets the gradient of operand i to `sign` times the sum of `grad`, which has the shape of the
// result, over the dimensions along which the operand repeats.
void SetRepeatedGrad(GradientBuilder& b, int i, ValueId grad, double sign);

}  // namespace weir::ops
