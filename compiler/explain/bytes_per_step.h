// Counts the bytes that a step sends, without a lowered rank.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

// Returns the bytes that all boxings of one step send over all links, by the closed form of
// sbp/boxing.h. If only some steps update, the result is the mean over the steps of an update.
absl::StatusOr<int64_t> BytesPerStep(const LogicalPlan& plan);

}  // namespace weir::compiler
