// Spreads the acts of each device over the period, so that the acts need not wait for each other.
// The result is a modulo schedule (Rau and Glaeser 1981; Lam 1988). The algorithm places actors in
// the order of given times, each at the first time from which its acts are alone on their device.
// The result is a list of orders that say which actor follows which on the device, round and round.
// The algorithm is not exact: if the remaining gaps are too short for an act, the act overlaps with
// others. Thread rule: pure functions.
#pragma once

#include <span>
#include <vector>

#include "compiler/rates/difference_system.h"
#include "compiler/rates/rhythm.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

// Returns differences that some times keep together with `differences`; the orders that no times
// keep are left out. The nodes of differences are the actors. `times` has the actors first and may
// have more nodes after them. Precondition: `times` keep `differences`.
std::vector<Difference> FindDeviceOrder(const TimedGraph& graph, const Rhythm& rhythm,
                                        const Pace& pace, std::span<const Difference> differences,
                                        std::span<const int64_t> times);

}  // namespace weir::compiler
