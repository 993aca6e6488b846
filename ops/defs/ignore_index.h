// The attribute `ignore_index` of the ops that read targets: the value of the targets that do not
// count, such as -100 for padding. Thread rule: pure functions.
#pragma once

#include <string>

#include "ops/defs/op_def.h"
#include "ops/defs/operand_check.h"

namespace weir::ops {

inline constexpr char kIgnoreIndex[] = "ignore_index";

// `effect` completes "a target of this value is ignored: ".
AttrSchema IgnoreIndexAttr(const std::string& effect);

// States that the attribute has at most one value, of type i32: W0310.
OperandCheck& CheckIgnoreIndex(const Attributes& attrs, OperandCheck& check);

}  // namespace weir::ops
