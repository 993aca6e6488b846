// When every act starts, as a promise that can be checked edge by edge: the certificate of a plan.
//
//   start(v, iteration n, act k) = n * iteration_ns + start_ns + (k / chunks) * micro_batch_ns + (k % chunks) * chunk_ns
//
// with `iteration_ns` and `micro_batch_ns` of the whole graph (actors that act once an iteration do not use the
// latter). If no act starts before what it needs has ended, for all n and k, then taking acts in the order of their
// starts never waits: no schedule of the plan deadlocks, and one iteration in iteration_ns is possible if acts of one
// device do not collide (the solve spaces them; the check is about tokens, slots and orders only).
// The check of an edge looks at the tokens of one iteration, or at two of them where both ends are even.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

struct StartTimes {
  int64_t iteration_ns = 0;
  int64_t micro_batch_ns = 0;
  struct Actor {
    int64_t start_ns = 0;
    int64_t chunk_ns = 0;
  };
  std::vector<Actor> actors;
};

// kInternal naming the edge, if some act would start too early. Slots must be given.
absl::Status CheckStartTimes(const TimedGraph& graph, const StartTimes& times);

}  // namespace weir::compiler
