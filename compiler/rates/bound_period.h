// Finds the shortest even rhythm that the given parts of a graph allow: tokens, orders, and
// registers with slots or a limit of slots. Thread rule: pure functions.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/rates/rhythm.h"
#include "compiler/rates/solve_registers.h"
#include "compiler/rates/timed_graph.h"
#include "compiler/rates/waits.h"

namespace weir::compiler {

// Returns the waits that the solve cannot change: AllWaits, and the slot waits at slots_max of
// registers without given slots.
std::vector<Wait> FixedWaits(const TimedGraph& graph);

// Returns the period of the busiest device, whatever waits for what.
PeriodBound DeviceBound(const TimedGraph& graph, const Rhythm& rhythm);

// Finds the least period >= `from_ns`, in granules of the rhythm, at which start times keep
// `waits`. `circle` holds the actors of the last circle that forbade a shorter period; empty:
// `from_ns` itself works. Returns nothing if no period works.
struct ShortestPeriod {
  int64_t micro_batch_ns = 0;
  std::vector<ActorId> circle;
};
std::optional<ShortestPeriod> FindShortestPeriod(const TimedGraph& graph, const Rhythm& rhythm,
                                                 const std::vector<Wait>& waits, int64_t from_ns);

// Returns start times that keep `waits` at the given period, with the shortest iteration for that
// period. If the search takes long, the iteration may be a thousandth longer than the shortest.
// Returns nothing if there are no such times.
std::optional<StartTimes> FindStartTimes(const TimedGraph& graph, const Rhythm& rhythm,
                                         const std::vector<Wait>& waits, int64_t micro_batch_ns);

}  // namespace weir::compiler
