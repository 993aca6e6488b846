// Spreads the acts of each device over the period, so that they need not wait for each other: a
// modulo schedule (Rau and Glaeser 1981; Lam 1988). Actors are placed in the order of given times,
// each at the first time from which its acts are alone on their device. What comes back are orders:
// who follows whom on the device, round and round. Not exact: where the gaps that are left are too
// short for an act, it overlaps with others. Thread rule: pure functions.
#pragma once

#include <span>
#include <vector>

#include "compiler/rates/difference_system.h"
#include "compiler/rates/rhythm.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

// Differences that, with `differences`, some times keep; without those that none keeps. `times`
// keep `differences`.
std::vector<Difference> FindDeviceTurns(const TimedGraph& graph, const Rhythm& rhythm,
                                        const Pace& pace, std::span<const Difference> differences,
                                        std::span<const int64_t> times);

}  // namespace weir::compiler
