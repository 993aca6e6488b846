// The checks of a plan whose ranks worker processes will hold, before any of these is started.
// Thread rule: a pure function, but for the system's facts about its memory.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/logical_plan.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"

namespace weir::fleet {

// Checks what a process that holds all ranks checks when it opens its session. Returns the memory
// that each rank needs. Hosts check themselves.
absl::StatusOr<IdVector<RankId, int64_t>> CheckPlan(const compiler::LogicalPlan& plan, int threads,
                                                    bool is_on_hosts);

}  // namespace weir::fleet
