// Writes the reference of ops from their definitions, for `weir ops NAME`. The reference says
// nothing about kernels or devices. Thread rule: pure functions.
#pragma once

#include <string>

#include "ops/defs/op_def.h"

namespace weir::ops {

// Returns doc, operands, attributes with defaults, factor rule and gradient. Ends in a newline.
std::string DescribeOp(const OpDef& def);

// Returns one line per op that a graph may use, "name  doc", sorted by name.
std::string ListUserOps();

}  // namespace weir::ops
