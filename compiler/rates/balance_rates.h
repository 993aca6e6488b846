// Finds how often each actor acts in one iteration. The counts are the smallest whole solution of
// the balance equations
//   acts(p) * tokens_p / period_p = acts(c) * tokens_c / period_c
// for every register with producer p and every consumer c of the register. If the `acts` of an
// actor are given, the solution of its connected part is scaled to them.
// Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

// Fills in Actor::acts. kInvalidArgument (W0493): there is no solution. The error names two paths
// that disagree, by the names of their actors, and the rate that each path needs.
absl::Status BalanceRates(TimedGraph* graph);

}  // namespace weir::compiler
