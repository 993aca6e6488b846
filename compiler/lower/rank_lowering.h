// From the logical plan to one rank's actors and tensors. Pure in (plan, rank): a rank
// never looks at what another one runs; both ends of a transfer compute the same edge id.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/lower/rank_graph.h"

namespace weir::compiler {

absl::StatusOr<RankGraph> LowerToRankGraph(const LogicalPlan& plan, int64_t rank);

// Registers, slot counts, memory, programs: the finished plan. Register counts are those of the
// pipeline schedule (schedule_slots.h).
absl::StatusOr<RankPlan> AllocateRegisters(const LogicalPlan& plan, const RankGraph& graph);

}  // namespace weir::compiler
