// Joins boxings of the program that can travel together into one boxing, which makes messages fewer
// and larger. Joined boxings share the producer, the readers and their stage, the rate, the rate
// of the values that they move, the element type, and the places of their steps.
// Thread rule: pure function.
#pragma once

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "sbp/mesh.h"

namespace weir::compiler {

absl::Status BundleBoxings(const sbp::Places& places, Module* module);

}  // namespace weir::compiler
