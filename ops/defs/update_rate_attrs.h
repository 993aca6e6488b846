// Attributes that tell the ops of an update which step of the optimiser a step of the job makes
// (runtime/base/update_rate.h). Thread rule: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "ops/defs/op_def.h"

namespace weir::ops {

void AddUpdateRate(std::vector<AttrSchema>* attrs);
absl::Status CheckUpdateRate(const InferInput& in);

}  // namespace weir::ops
