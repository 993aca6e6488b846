// Steps that the gradients of many ops share. No op of its own lives here.
// Thread rule: as GradientBuilder.
#pragma once

#include <string>
#include <vector>

#include "ops/defs/op_def.h"

namespace weir {

// The gradient of forward output i with the output's element type (a cast is added
// where it differs); -1 if none flows.
ValueId OutputGrad(GradientBuilder& b, int output);

// W0315 if a gradient flows to output i: it is a by-product (a statistic), not differentiable.
absl::Status ExpectNoGrad(GradientBuilder& b, const std::string& op, int output,
                          const std::string& name);

// Adds a node of one result.
ValueId Add1(GradientBuilder& b, const std::string& op, const std::vector<ValueId>& inputs,
             Attributes attrs);

// Sets the gradient of input i; where names or units of `grad` are not those of the input,
// a reshape (a copy that may be aliased) gives it the input's.
void SetGrad(GradientBuilder& b, int input, ValueId grad);

// The sum of `grad` over its first `count` axes, in f32: how the gradient of a
// broadcast operand is made. count == 0 is `grad` itself.
ValueId SumLeading(GradientBuilder& b, ValueId grad, size_t count);

}  // namespace weir
