// Chooses the buddies of the processes of a job. The buddy of a process keeps, in its memory, a
// copy of those states of the process that end with the process or with its host.
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"

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

}  // namespace weir::fleet
