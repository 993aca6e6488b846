// A rank's part in the rhythm of its job: slots of registers that were not given, the times of its
// actors and of those at the far ends of its messages, checked edge by edge and written into the
// plan. Thread rule: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "compiler/lower/rank_graph.h"
#include "compiler/rates/start_times.h"
#include "compiler/rhythm/job_rhythm.h"
#include "proto/plan.pb.h"

namespace weir::compiler {

// The fewest slots with which no act of `entry`'s producer starts before a slot is free, at these
// times.
int64_t SlotsNeeded(const TimedGraph& graph, const StartTimes& times,
                    const TimedGraph::Register& entry);

// `plan` has the actors of `graph`, one by one, and its registers, and `readers` the stations that
// read each register on some rank of the stage (RankTensor::readers); slots of 0 are filled in.
// kInternal if the certificate does not hold here: this rank does something that the shape of its
// stage has not. kInvalidArgument (W0549): an iteration of `steps_per_iteration` steps takes longer
// than a plan can say.
absl::Status ApplyRhythm(const JobRhythm& rhythm, int64_t steps_per_iteration,
                         const RankGraph& graph, const std::vector<std::vector<Station>>& readers,
                         RankPlan* plan);

}  // namespace weir::compiler
