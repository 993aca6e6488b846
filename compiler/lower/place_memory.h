// Where everything of one rank lies: arena offsets of registers, states and scratch. Knows a finished plan and
// nothing of how it came about.
// Thread rule: pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/plan.pb.h"

namespace weir::compiler {

// The memory of a state: its own, or that of a register (the weight that an update writes in place).
struct StateHome {
  int register_id = -1;  // -1: its own
  int64_t offset = 0;    // in the register
};

// Sets arena_offset and stride of all registers and states, scratch_bytes and arena_bytes.
// Precondition: homes[i] is that of state i; registers, actors and programs are complete.
void PlaceMemory(const std::vector<StateHome>& homes, RankPlan* plan);

}  // namespace weir::compiler
