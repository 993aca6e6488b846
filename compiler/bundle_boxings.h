// Joins boxings of the program that can travel together (same producer, same readers' stage, rate,
// element type and number of steps) into one: fewer, larger messages.
// Thread rule: pure function.
#pragma once

#include "absl/status/status.h"
#include "compiler/ir.h"
#include "sbp/mesh.h"

namespace weir::compiler {

absl::Status BundleBoxings(const Mesh& mesh, Module* module);

}  // namespace weir::compiler
