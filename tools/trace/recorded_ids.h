// Ids of a recorded run. They number the actors, registers, queues and ranks of a trace over all of
// its ranks, where the ids of a plan (runtime/base/ids.h) number those of one rank. Thread rule:
// values.
#pragma once

#include "runtime/base/ids.h"

namespace weir::trace {

using RecordedActorId = Id<struct RecordedActorTag>;
using RecordedRegisterId = Id<struct RecordedRegisterTag>;  // both ends of an edge are one register
using RecordedQueueId = Id<struct RecordedQueueTag>;
using RecordedRankId = Id<struct RecordedRankTag>;  // a place among the ranks that the trace holds

}  // namespace weir::trace
