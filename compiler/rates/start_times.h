// The certificate of a plan: a start time for every act. The times can be checked edge by edge.
//
//   start(v, iteration n, act k) = n * iteration_ns + start_ns + OffsetOf(k, chunks)
//
// `start_ns` and OffsetOf are those of the actor's Timing. The stride of a Timing leads from the
// actor's acts for one micro-batch to the actor's acts for the next (two micro-batches later for an
// actor that acts for every second one). An actor that acts once an iteration (acts = chunks) has
// no use for the stride.
//
// Suppose that no act starts before the acts that it needs have ended, for all n and k. Then a run
// that takes acts in the order of their starts never waits. No schedule of the plan deadlocks, and
// one iteration in iteration_ns is possible if acts of one device do not collide. The solve spaces
// the acts of a device. The check covers tokens, slots and orders only, and that acts of one actor
// do not overlap. For each edge the check looks at the tokens of one iteration, or at a few of
// these tokens if both ends are even. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "compiler/rates/timed_graph.h"
#include "runtime/base/rate.h"

namespace weir::compiler {

struct StartTimes {
  int64_t iteration_ns = 0;
  // The shortest micro_batch_stride_ns. The solve works on this period, and the check does not look
  // at it.
  int64_t micro_batch_ns = 0;
  IdVector<ActorId, Timing> actors;  // the check takes the time of an act from the graph
};

// kInternal, with the name of the edge: some act would start too early. Precondition: slots are
// given and rates are balanced.
absl::Status CheckStartTimes(const TimedGraph& graph, const StartTimes& times);

}  // namespace weir::compiler
