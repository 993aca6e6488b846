// Whether a graph with given slots can run for ever, and if not, why and what would mend it.
// One iteration is played greedily; if every actor does its acts, the state is as before and so all
// schedules of all iterations complete (see timed_graph.h). O(acts x ports). Thread rule: pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

struct Deadlock {
  // Who waits for whom, round to the first: actors[i] waits through links[i] for actors[(i + 1) %
  // n].
  struct Link {
    enum class Kind : uint8_t { kToken, kSlot, kOrder } kind = Kind::kToken;
    int index = -1;  // register or order
  };
  std::vector<int> actors;
  std::vector<Link> links;
  // The cheapest repair that was found, tried by playing again: more slots, all else unchanged.
  // Usually of one register; of more where several cycles are dead. Empty: no slot helps (or none
  // is allowed to grow).
  struct Repair {
    int reg = -1;
    int64_t slots = 0;  // the count that it takes
  };
  std::vector<Repair> repairs;
  int64_t repair_bytes = 0;  // what they add
};

struct Liveness {
  bool live = false;
  Deadlock deadlock;  // if not live
};

// Precondition: acts are balanced, slots given (> 0).
Liveness CheckLiveness(const TimedGraph& graph);

// The error of a plan that cannot run (W0494): the cycle in the actors' names, each with what it
// waits for, and the repair. `remedy` is what gives registers such slots, in words of who chose
// theirs ("runtime.registers: SOLVED"); may be empty.
absl::Status DeadlockError(const TimedGraph& graph, const Deadlock& deadlock,
                           const std::string& remedy = "");

}  // namespace weir::compiler
