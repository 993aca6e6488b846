// Turns the actors and tensors of one rank into the plan of that rank.
// Thread rule: pure function.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"
#include "proto/plan.pb.h"

namespace weir::compiler {

// Returns the finished plan: registers, slot counts (slot_policy.h), memory, programs and times.
absl::StatusOr<proto::RankPlan> AllocateRegisters(const LogicalPlan& plan, const RankGraph& graph);

}  // namespace weir::compiler
