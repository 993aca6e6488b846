// Infers the values that the integer inputs of a model may have, and the inputs that a plan reads
// at all. A range starts at an op that reads a value as indices (OperandSchema::index) and moves
// backward to the inputs of `main`, through ops that move elements (OpSchema::moves_elements) and
// through calls. The graph can also declare ranges (ops/defs/type_text.h). The narrowest range
// counts, because every reader must have room. Thread rule: pure function.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"

namespace weir::compiler {

// Fills ModelValue::use of the values that data feeds. Precondition: the model is imported and no
// pass has run. `main` is the name of the graph's main function, for messages. kInvalidArgument: a
// declared range is wider than a reader has room for (W0902), or an op computes an index (W0903).
absl::Status InferIndexRanges(const std::string& main, Module* module);

}  // namespace weir::compiler
