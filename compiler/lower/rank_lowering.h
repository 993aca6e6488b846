// Lowers the logical plan to the actors and tensors of one rank. The result depends only on the
// plan and the rank: a rank never looks at the graph of another rank, and both ends of a transfer
// compute the same edge id. Thread rule: pure functions, except that ShapeStages writes into its
// plan.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"
#include "compiler/lower/known_calls.h"
#include "compiler/transfer/transfer_lowering.h"

namespace weir::compiler {

// Fills in plan->stages. Call ShapeStages before the other functions here, and again after a change
// of plan->settings.runtime.
absl::Status ShapeStages(LogicalPlan* plan);

// Preconditions: ShapeStages has run, and the plan has the rank.
absl::StatusOr<RankGraph> LowerToRankGraph(const LogicalPlan& plan, RankId rank);
// The same, for several ranks. What the calls of ranks of one number in their stages share is made
// once: `known` has seen no other ranks, and no other plan. Boxings of all ranks are planned once:
// `transfers` has the settings of the plan, and has seen no other plan.
absl::StatusOr<RankGraph> LowerToRankGraph(const LogicalPlan& plan, RankId rank, KnownCalls* known,
                                           TransferFactory* transfers);

}  // namespace weir::compiler
