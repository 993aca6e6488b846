// Register counts of the policy SCHEDULE, which follows the pipeline schedule. A register from one
// pass of a micro-batch to another has the slots that compiler/ir/pipeline_schedule.h gives. A
// landing buffer has two slots if micro-batches or chunks follow one another. All other registers
// have one slot. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"

namespace weir::compiler {

int64_t ScheduleSlots(const LogicalPlan& plan, const RankGraph& graph, const RankTensor& tensor);

// Returns the pass that the actor itself computes. None: the actor only carries the results of
// others.
std::optional<PipelinePass> ComputedPass(const RankActor& actor);

// Precedence and priority of an actor's work for the pipeline. Empty and 0 for an actor that
// belongs to no pass.
Precedence SchedulePrecedence(const LogicalPlan& plan, const RankActor& actor);
int SchedulePriority(const LogicalPlan& plan, const RankGraph& graph, const RankActor& actor);

}  // namespace weir::compiler
