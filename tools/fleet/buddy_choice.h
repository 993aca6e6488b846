// Chooses the buddies of the processes of a job. The buddy of a process keeps, in its memory, a
// copy of those states of the process that end with the process or with its host.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/fleet/guarded_states.h"

namespace weir::fleet {

// Returns the buddy of each worker; nullopt: there is no other worker. `host_of[worker]` is the
// name of the worker's host, equal for the workers of one host.
//   - No worker is its own buddy.
//   - The buddy is on another host wherever the job has one, so that the loss of a host loses no
//     states.
//   - No worker is the buddy of more workers than that needs: of one worker, unless more than half
//     of all workers are on one host. Then the workers of the other hosts share them evenly.
IdVector<WorkerId, std::optional<WorkerId>> ChooseBuddies(
    const IdVector<WorkerId, std::string>& host_of);

// Returns what ChooseBuddies returns for those workers that the job still has; the others neither
// have a buddy nor are one.
IdVector<WorkerId, std::optional<WorkerId>> ChooseBuddiesOf(
    const std::vector<WorkerId>& workers, const IdVector<WorkerId, std::string>& host_of);

// Why a job makes copies for buddies, or makes none.
enum class BuddyNeed : uint8_t {
  kCopies,       // some states end with one host, or, on one host, with one process
  kOneProcess,   // there is no buddy
  kAllReplicas,  // every state has a replica elsewhere
};
// `lone[worker]` are the shards that end with the worker or its host (LoneShards).
BuddyNeed ChooseNeed(const std::vector<WorkerId>& workers,
                     const IdVector<WorkerId, std::vector<GuardedShard>>& lone);

}  // namespace weir::fleet
