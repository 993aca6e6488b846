// Finds weights that begin as zeros because the job gives them no `init`. Thread rule: pure
// functions.
#pragma once

#include <string>

#include "compiler/ir/ir.h"

namespace weir::compiler {

// Returns a sentence that names the matrices (tensors of two or more dimensions) without an `init`,
// if there are at least two: where one multiplies the other, the gradient of each is zero, and
// neither ever changes. Empty: at most one such matrix, as in a linear model, which learns from
// zeros. Zeros that the job writes (`init { zeros: true }`) do not count.
std::string WeightsWithoutInit(const Module& module);

}  // namespace weir::compiler
