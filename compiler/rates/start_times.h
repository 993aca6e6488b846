// When every act starts, as a promise that can be checked edge by edge: the certificate of a plan.
//
//   start(v, iteration n, act k) = n * iteration_ns + start_ns + (k / chunks) * turn_ns + (k %
//   chunks) * chunk_ns
//
// `turn_ns` is the actor's own: from its acts for one micro-batch to those for the next (two
// micro-batches later for an actor that acts for every second one). Actors that act once an
// iteration (acts = chunks) do not use it. If no act starts before what it needs has ended, for all
// n and k, then taking acts in the order of their starts never waits: no schedule of the plan
// deadlocks, and one iteration in iteration_ns is possible if acts of one device do not collide
// (the solve spaces them; the check is about tokens, slots and orders only, and that acts of one
// actor do not overlap). The check of an edge looks at the tokens of one iteration, or at a few of
// them where both ends are even. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

struct StartTimes {
  int64_t iteration_ns = 0;
  int64_t micro_batch_ns =
      0;  // the shortest turn_ns: what the solve works on; the check does not look at it
  struct Actor {
    int64_t start_ns = 0;
    int64_t turn_ns = 0;
    int64_t chunk_ns = 0;
  };
  std::vector<Actor> actors;
};

// kInternal naming the edge, if some act would start too early. Slots must be given, rates
// balanced.
absl::Status CheckStartTimes(const TimedGraph& graph, const StartTimes& times);

}  // namespace weir::compiler
