// Builds the pair of ops of an activation whose gradient needs its input: gelu, silu. The gradient
// of relu needs its result, so relu stands by itself as the simplest op to copy.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "ops/defs/op_def.h"

namespace weir::ops {

// Defines `name`, y = f(x) with `flops` per element, and "<name>_grad", dx = dy f'(x).
OpDef SmoothActivationDef(const std::string& name, const std::string& doc, double flops);
OpDef SmoothActivationGradDef(const std::string& name, double flops);

}  // namespace weir::ops
