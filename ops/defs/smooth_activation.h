// Activations whose gradient needs their input: gelu, silu. One builder for the pair of ops; relu,
// whose gradient needs its result, stands by itself as the simplest op to copy.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "ops/defs/op_def.h"

namespace weir {

// `name`: y = f(x) with `flops` per element, and "<name>_grad": dx = dy f'(x).
OpDef SmoothActivationDef(const std::string& name, const std::string& doc, double flops);
OpDef SmoothActivationGradDef(const std::string& name, double flops);

}  // namespace weir
