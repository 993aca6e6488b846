// Plays every interleaving of a small plan: depth-first over the decisions of the simulator. Each
// run is played from the start, and ends early in a state (memory included) that was already seen.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "tests/chaos/world.h"

namespace weir::chaos {

struct ExhaustiveResult {
  std::string failure;  // of the first failed run; empty if no run failed
  int64_t num_runs = 0;
  int64_t num_states = 0;
  enum class End : uint8_t { kComplete, kOutOfRuns } end = End::kComplete;
};

ExhaustiveResult PlayAll(World& world, const World::Run& run, int64_t runs_max);

}  // namespace weir::chaos
