// How often each actor acts in one iteration: the smallest whole solution of the balance equations
//   acts(p) * tokens_p / period_p = acts(c) * tokens_c / period_c     for every register and
//   consumer,
// per connected part scaled so that actors whose `acts` is given have it.
// Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

// Fills Actor::acts. kInvalidArgument (W0493) if there is no solution; names the two paths that
// disagree, in the actors' names, and the rate that each asks for.
absl::Status BalanceRates(TimedGraph* graph);

}  // namespace weir::compiler
