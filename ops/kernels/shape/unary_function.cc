#include "ops/kernels/shape/unary_function.h"

namespace weir::kernels {

std::optional<Unary> UnaryFromName(const std::string& name) {
#define WEIR_UNARY_IF_NAMED(id, text, Code, has_grad) \
  if (name == text) return Unary::id;
  WEIR_UNARY_FUNCTIONS(WEIR_UNARY_IF_NAMED)
#undef WEIR_UNARY_IF_NAMED
  return std::nullopt;
}

}  // namespace weir::kernels
