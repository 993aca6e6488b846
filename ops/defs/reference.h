// The reference of ops, written from their definitions: what `weir ops NAME` prints.
// Nothing about kernels or devices. Thread rule: pure functions.
#pragma once

#include <string>

#include "ops/defs/op_def.h"

namespace weir {

// Doc, operands, attributes with defaults, factor rule, gradient. Ends in a newline.
std::string DescribeOp(const OpDef& def);

// One line per op a graph may use, "name  doc", sorted by name.
std::string ListUserOps();

}  // namespace weir
