// Joins boxings of the program that can travel together into one boxing, which makes messages fewer
// and larger. Joined boxings share the producer, the stage of the readers, the rate, the element
// type and the number of steps.
// Thread rule: pure function.
#pragma once

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "sbp/mesh.h"

namespace weir::compiler {

absl::Status BundleBoxings(const sbp::Places& places, Module* module);

}  // namespace weir::compiler
