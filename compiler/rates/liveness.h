// Checks whether a graph with given slots can run for ever. If not, the check says why and finds a
// repair. The check plays one iteration greedily. If every actor does its acts, the state is as
// before the iteration, so all schedules of all iterations complete (see timed_graph.h). O(acts x
// ports). Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

struct Deadlock {
  // A circle of waits: actors[i] waits through links[i] for actors[(i + 1) % n].
  struct Link {
    enum class Kind : uint8_t { kToken, kSlot, kOrder } kind = Kind::kToken;
    RegisterId reg;  // kToken, kSlot
    int order = -1;  // kOrder: in TimedGraph::orders
  };
  std::vector<ActorId> actors;
  std::vector<Link> links;
  // The cheapest repair that was found and tried by another play: more slots, with all else
  // unchanged. A repair usually grows one register, and more if several cycles are dead. Empty: no
  // number of slots helps, or no register may grow.
  struct Repair {
    RegisterId reg;
    int64_t slots = 0;  // the new count
  };
  std::vector<Repair> repairs;
  int64_t repair_bytes = 0;  // bytes that the repairs add
};

struct Liveness {
  bool live = false;
  Deadlock deadlock;  // if not live
};

// Precondition: acts are balanced and slots are given (> 0).
Liveness CheckLiveness(const TimedGraph& graph);

// Returns the error of a plan that cannot run (W0494): the cycle by the names of its actors, the
// wait of each actor, and the repair. `remedy` says which setting would give registers such slots,
// in the words of the choice that set the present slots ("runtime.registers: SOLVED"). `remedy` may
// be empty.
absl::Status DeadlockError(const TimedGraph& graph, const Deadlock& deadlock,
                           const std::string& remedy = "");

}  // namespace weir::compiler
