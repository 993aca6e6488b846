// From the logical plan to one rank's actors and tensors. Pure in (plan, rank): a rank
// never looks at what another one runs; both ends of a transfer compute the same edge id.
// Thread rule: pure functions but for ShapeStages, which writes into its plan.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/lower/rank_graph.h"

namespace weir::compiler {

// Fills in plan->stages. Comes before all else here, and again when plan->job.runtime() has
// changed.
absl::Status ShapeStages(LogicalPlan* plan);

// Precondition: ShapeStages.
absl::StatusOr<RankGraph> LowerToRankGraph(const LogicalPlan& plan, int64_t rank);

// kInvalidArgument (W0480, W0486): sizes and counts that no device has, whatever the slots.
absl::Status CheckSizes(const RankGraph& graph);

// Registers, slot counts (slot_policy.h), memory, programs, times: the finished plan.
absl::StatusOr<RankPlan> AllocateRegisters(const LogicalPlan& plan, const RankGraph& graph);

}  // namespace weir::compiler
