#include "ops/defs/smooth_activation.h"

namespace weir::ops {
namespace {

WEIR_REGISTER_OP(SmoothActivationDef(
    "gelu", "y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), element by element.", 10));
WEIR_REGISTER_OP(SmoothActivationGradDef("gelu", 18));
WEIR_REGISTER_OP(SmoothActivationDef("gelu_exact",
                                     "y = x / 2 * (1 + erf(x / sqrt(2))), element by element.",
                                     16));
WEIR_REGISTER_OP(SmoothActivationGradDef("gelu_exact", 19));

}  // namespace
}  // namespace weir::ops
