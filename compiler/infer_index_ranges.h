// Which values the integer inputs of a model may have: from the ops that read them as indices
// (OperandSchema::index), backward through ops that move elements (OpSchema::moves_elements) and
// through calls, to the inputs of `main`; and from what the graph declares (ops/defs/type_text.h).
// The narrowest range counts, since every reader must have room. Also which inputs a plan reads at
// all. Thread rule: pure function.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "compiler/ir.h"

namespace weir::compiler {

// Fills ModelValue::use of the values that data feeds. Precondition: an imported model, before any
// pass. `main` is the name of the graph's main function, for messages. kInvalidArgument: a declared
// range wider than a reader has room for (W0902), an index that an op computes (W0903).
absl::Status InferIndexRanges(const std::string& main, Module* module);

}  // namespace weir::compiler
