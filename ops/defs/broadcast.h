// Ops whose operands are aligned at their last dimensions share these functions. Each dimension of
// the result is that of every operand, unless the operand lacks the dimension or has size 1 there.
// Along such a dimension the operand repeats. Thread rule: pure functions; SetRepeatedGrad as
// GradientBuilder.
#pragma once

#include <vector>

#include "ops/defs/op_def.h"
#include "ops/defs/operand_check.h"

namespace weir::ops {

// Returns the type of the only output, whose elements have type `dtype`. Errors: those of `check`,
// which holds what the op expects of `in` so far; W0308: two operands do not fit
// (OperandCheck::Broadcast).
absl::StatusOr<std::vector<sbp::TensorType>> InferBroadcast(const InferInput& in,
                                                            OperandCheck& check, DType dtype);

// Returns a rule with one factor per dimension of output 0, the only output. An operand that
// repeats along a dimension does not have its factor. The attributes do not matter.
sbp::FactorRule BroadcastRule(const Attributes& attrs, const std::vector<sbp::TensorType>& inputs,
                              const std::vector<sbp::TensorType>& outputs);

// Sets the gradient of operand i to `sign` times the sum of `grad`, which has the shape of the
// result, over the dimensions along which the operand repeats.
void SetRepeatedGrad(GradientBuilder& b, int i, ValueId grad, double sign);

}  // namespace weir::ops
