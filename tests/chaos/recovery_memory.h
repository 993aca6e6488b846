// Counts the elements that the memory of a job has at a moment, independently of the product's plan
// for a recovery (recovery_plan.h). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/fleet/epoch_start.h"
#include "tools/fleet/recovery_plan.h"

namespace weir::chaos {

// A MemoryOfWorker lists the states that a worker reports.
struct MemoryOfWorker {
  WorkerId worker;
  fleet::WorkerStanding standing;
  fleet::MeshesOfStates meshes;
};

// Returns whether these workers together have every element of every state of `step`, where states
// lie as in `layout`, on the mesh of that number.
bool HasAll(int64_t step, const fleet::StateLayout& layout, uint32_t mesh,
            const std::vector<MemoryOfWorker>& memory);
// Returns the steps of which some of these workers have states.
std::set<int64_t> StepsIn(const std::vector<MemoryOfWorker>& memory);

}  // namespace weir::chaos
