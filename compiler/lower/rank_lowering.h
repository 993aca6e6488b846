// Lowers the logical plan to the actors and tensors of one rank. The result depends only on the
// plan and the rank: a rank never looks at the graph of another rank, and both ends of a transfer
// compute the same edge id. Thread rule: pure functions, except that ShapeStages writes into its
// plan.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/lower/rank_graph.h"

namespace weir::compiler {

// Fills in plan->stages. Call ShapeStages before the other functions here, and again after a change
// of plan->job.runtime().
absl::Status ShapeStages(LogicalPlan* plan);

// Precondition: ShapeStages has run.
absl::StatusOr<RankGraph> LowerToRankGraph(const LogicalPlan& plan, int64_t rank);

// kInvalidArgument (W0480, W0486): sizes or counts are beyond any device, whatever the slots.
absl::Status CheckSizes(const RankGraph& graph);

// Returns the finished plan: registers, slot counts (slot_policy.h), memory, programs and times.
absl::StatusOr<RankPlan> AllocateRegisters(const LogicalPlan& plan, const RankGraph& graph);

}  // namespace weir::compiler
