// Places everything in the arena of one rank: registers, states and scratch get offsets. The input
// is a finished plan, and the history of the plan does not matter. Thread rule: pure function, and
// one thread for a placer.
#pragma once

#include <cstdint>
#include <memory>
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

// A MemoryPlacer places the memory of one plan again and again, while the slots of the plan's
// registers change. The placer proves which registers never live at the same time, and keeps the
// proofs for as long as they do not depend on the changes. Each result is that of PlaceMemory.
class MemoryPlacer {
 public:
  // Precondition: homes[i] is the home of state i; registers, actors and programs are complete.
  // `plan` outlives the placer, and nothing but its slots changes.
  MemoryPlacer(std::vector<StateHome> homes, std::vector<LandingOrder> landings,
               proto::RankPlan* plan);
  ~MemoryPlacer();

  // Sets arena_offset and stride of all registers and states, scratch_bytes and arena_bytes.
  void Place();

 private:
  struct Proofs;

  // Makes the proofs, unless those of the last call hold for these sharers.
  void Prove(const std::vector<int>& sharers);
  int64_t PlaceSharers(const std::vector<int>& sharers, int64_t begin);

  const std::vector<StateHome> homes_;
  const std::vector<LandingOrder> landings_;
  proto::RankPlan& plan_;
  std::unique_ptr<Proofs> proofs_;
};

// Does what a MemoryPlacer does, once.
void PlaceMemory(const std::vector<StateHome>& homes, const std::vector<LandingOrder>& landings,
                 proto::RankPlan* plan);

}  // namespace weir::compiler
