// Gives states their first values: zeros, ones, normal or uniform numbers. A number is a function
// of (seed, name of the state, global element), so every layout, replica and number of ranks starts
// from the same model.
// Thread rule: a pure function of its arguments.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "actors/engine/feed.h"
#include "actors/plan/plan.h"

namespace weir::actors {

// Fills slice.bytes() bytes at `memory`. kInvalidArgument (W0505) for random integers.
absl::Status InitializeState(uint64_t seed, const std::string& name, const TensorSlice& slice,
                             const PlanInitializer& init, void* memory);

// Returns the same function as a callback for a session.
StateInitializer SeededInitializer(uint64_t seed);

}  // namespace weir::actors
