// Applies the rhythm of a job to one rank: the slots of registers that were not given, the times of
// the rank's actors, and the times of the actors at the far ends of its messages. The times are
// checked edge by edge and written into the plan. Thread rule: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/job_rhythm.h"
#include "compiler/ir/rank_graph.h"
#include "compiler/rates/start_times.h"
#include "proto/plan.pb.h"

namespace weir::compiler {

// Returns the fewest slots with which no act of `entry`'s producer starts before a slot is free, at
// these times.
int64_t SlotsNeeded(const TimedGraph& graph, const StartTimes& times,
                    const TimedGraph::Register& entry);

// Fills in slots of 0 and the times of `plan`. `plan` has the actors of `graph`, one by one, and
// its registers. `readers` gives the stations that read each register on some rank of the stage
// (RankTensor::readers). kInternal: the certificate does not hold here, because this rank does
// something that the shape of its stage lacks. kInvalidArgument (W0549): an iteration of
// `steps_per_iteration` steps takes longer than a plan can say.
absl::Status ApplyRhythm(const JobRhythm& rhythm, int64_t steps_per_iteration,
                         const RankGraph& graph,
                         const IdVector<RegisterId, std::vector<Station>>& readers,
                         proto::RankPlan* plan);

}  // namespace weir::compiler
