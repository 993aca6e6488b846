// Every interleaving of a small plan: depth-first over the decisions of the simulator, each
// time played from the beginning, and cut where a run comes to a state that has been seen,
// memory included.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "tests/chaos/world.h"

namespace weir::chaos {

struct ExhaustiveResult {
  std::string failure;  // of the first run that failed; empty if none did
  int64_t num_runs = 0;
  int64_t num_states = 0;
  enum class End : uint8_t { kComplete, kOutOfRuns } end = End::kComplete;
};

ExhaustiveResult PlayAll(World& world, const World::Run& run, int64_t runs_max);

}  // namespace weir::chaos
