// Repeats type inference over one function after a pass changed its types.
// Thread rule: pure.
#pragma once

#include "compiler/passes/pass.h"

namespace weir::compiler {

absl::Status InferTypes(const PassContext& context, Function* function);

}  // namespace weir::compiler
