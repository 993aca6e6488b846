// The shortest even rhythm of what is given: registers that have slots (or at most so many), tokens
// and orders. Thread rule: pure functions.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/rates/rhythm.h"
#include "compiler/rates/timed_graph.h"
#include "compiler/rates/waits.h"

namespace weir::compiler {

// Waits that the solve cannot change: AllWaits, and slot waits at slots_max of registers to be
// solved.
std::vector<Wait> FixedWaits(const TimedGraph& graph);

// The least period >= `from_ns`, in the rhythm's granules, at which start times keep `waits`, and
// the actors of the last circle that forbade a shorter one (empty: from_ns will do). Nothing if no
// period does.
struct ShortestPeriod {
  int64_t micro_batch_ns = 0;
  std::vector<int> circle;
};
std::optional<ShortestPeriod> FindShortestPeriod(const TimedGraph& graph, const Rhythm& rhythm,
                                                 const std::vector<Wait>& waits, int64_t from_ns);

// Start times that keep `waits` at a period, with the shortest iteration for it (or one that is a
// thousandth longer, where finding that takes long). Nothing if there are none.
std::optional<StartTimes> FindStartTimes(const TimedGraph& graph, const Rhythm& rhythm,
                                         const std::vector<Wait>& waits, int64_t micro_batch_ns);

}  // namespace weir::compiler
