// Register counts that a pipeline schedule asks for: the policy SCHEDULE. A register from one pass
// of a micro-batch to another has the slots that compiler/pipeline_schedule.h says, a landing
// buffer two where micro-batches or chunks follow one another, all others one. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/compile.h"
#include "compiler/lower/rank_graph.h"

namespace weir::compiler {

int64_t ScheduleSlots(const LogicalPlan& plan, const RankGraph& graph, const RankTensor& tensor);

// The pass that the actor computes itself, rather than carry what others made.
std::optional<PipelinePass> ComputedPass(const RankActor& actor);

// Of what an actor does for the pipeline; empty and 0 for actors that belong to no pass.
PipelineSchedule::Turn ScheduleTurn(const LogicalPlan& plan, const RankActor& actor);
int SchedulePriority(const LogicalPlan& plan, const RankGraph& graph, const RankActor& actor);

}  // namespace weir::compiler
