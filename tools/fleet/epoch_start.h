// How a job begins an epoch, once it is known which states are in memory (recovery_plan.h): the
// starter chooses between memory and files, and each worker decides what it does with the states of
// the epoch that it leaves.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/fleet/recovery_plan.h"

namespace weir::fleet {

// The meshes (OpenCommand.layout) of which a worker has states; 0: of none yet.
struct MeshesOfStates {
  uint32_t ranks = 0;   // the mesh of its ranks
  uint32_t copies = 0;  // that of its copies, also of those for others
};
// Returns what of a worker's standing counts on a mesh: ranks of another mesh hold other shards.
WorkerStanding StandingOn(uint32_t mesh, const MeshesOfStates& of, const WorkerStanding& standing);

// Where the states of the new epoch come from.
struct EpochStart {
  int64_t step = 0;         // steps done
  bool has_states = false;  // memory has them; otherwise all workers load the files
};
// Returns the start for a plan of what memory has, and files with the states of `file_step` steps.
// Memory counts unless the files are of a later step.
EpochStart ChooseStart(const RecoveryPlan& plan, int64_t file_step);

// What a worker does with the states of the epoch that it leaves.
enum class Leaving : uint8_t {
  kForgetsCopy,  // it goes on with other states
  kKeepsCopy,    // a copy of its has the states that it goes on with
  kCopiesRanks,  // its ranks, which rest, have them
};
// Returns what a worker does that has the states of `standing`. `goes_on`: it goes on with its
// states of `first_step` steps. kInternal: it has no such states.
absl::StatusOr<Leaving> ChooseLeaving(const WorkerStanding& standing, bool goes_on,
                                      int64_t first_step);

}  // namespace weir::fleet
