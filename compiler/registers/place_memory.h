// Places everything in the arena of one rank: registers, states and scratch get offsets. The input
// is a finished plan, and the history of the plan does not matter. Thread rule: pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/plan.pb.h"
#include "runtime/base/ids.h"

namespace weir::compiler {

// The memory of a state: its own, or the memory of a register (the weight that an update writes in
// place).
struct StateHome {
  RegisterId register_id;  // none: its own
  int64_t offset = 0;      // in the register
};

// An order that the plan of one rank does not show: the peer writes into an inbound register for
// micro-batch n only after `actor` on this rank has done its acts for micro-batch n - lag.
struct LandingOrder {
  RegisterId register_id;
  ActorId actor;
  int64_t lag = 0;
};

// Sets arena_offset and stride of all registers and states, scratch_bytes and arena_bytes.
// Precondition: homes[i] is the home of state i; registers, actors and programs are complete.
void PlaceMemory(const std::vector<StateHome>& homes, const std::vector<LandingOrder>& landings,
                 proto::RankPlan* plan);

}  // namespace weir::compiler
