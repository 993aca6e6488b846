// Steps that the gradients of many ops share. This header defines no op.
// Thread rule: as GradientBuilder.
#pragma once

#include <string>
#include <vector>

#include "ops/defs/op_def.h"

namespace weir::ops {

// Returns the gradient of forward output i with the output's element type (a cast is added where
// the types differ); -1 if no gradient flows.
ValueId OutputGrad(GradientBuilder& b, int output);

// W0315 if a gradient flows to output i: such an output is a by-product (a statistic) and not
// differentiable.
absl::Status ExpectNoGrad(GradientBuilder& b, const std::string& op, int output,
                          const std::string& name);

// Adds a node with one result.
ValueId Add1(GradientBuilder& b, const std::string& op, const std::vector<ValueId>& inputs,
             Attributes attrs);

// Sets the gradient of input i. If names or units of `grad` differ from those of the input, a
// reshape (a copy that may be aliased) gives `grad` the input's.
void SetGrad(GradientBuilder& b, int input, ValueId grad);

// Returns the sum of `grad` over `axes`, in f32. The gradient of a broadcast operand is made in
// this way. Without axes the result is `grad` itself.
ValueId SumOver(GradientBuilder& b, ValueId grad, const std::vector<int64_t>& axes);

}  // namespace weir::ops
