// Turns the actors and tensors of one rank into the plan of that rank.
// Thread rule: pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"
#include "compiler/rhythm/stage_twins.h"
#include "proto/plan.pb.h"

namespace weir::compiler {

// Returns the finished plan: registers, slot counts (slot_policy.h), memory, programs and times.
absl::StatusOr<proto::RankPlan> AllocateRegisters(const LogicalPlan& plan, const RankGraph& graph);

struct PlanAndArenas {
  proto::RankPlan plan;
  std::vector<std::optional<int64_t>> arena_bytes;  // by twin; none: only that stage's plan says
};
// The same, with the bytes that the arena has on the rank in the same position of each of `twins`.
// Precondition: the twins are those of the rank's stage, and PairWeights (twin_memory.h) says that
// their memory differs in nothing but slots.
absl::StatusOr<PlanAndArenas> AllocateRegisters(const LogicalPlan& plan, const RankGraph& graph,
                                                const std::vector<StageTwin>& twins);

}  // namespace weir::compiler
