#include "ops/defs/smooth_activation.h"

namespace weir::ops {
namespace {

WEIR_REGISTER_OP(SmoothActivationDef("silu", "y = x / (1 + exp(-x)), element by element.", 5));
WEIR_REGISTER_OP(SmoothActivationGradDef("silu", 8));

}  // namespace
}  // namespace weir::ops
