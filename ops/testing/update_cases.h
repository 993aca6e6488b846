// The cases of the ops of optimisers, among OpCases (op_cases.h). Thread rule: pure function.
#pragma once

#include <vector>

#include "ops/testing/op_cases.h"

namespace weir::ops {

void AddUpdateCases(std::vector<OpCase>* cases);

}  // namespace weir::ops
