// Decides how a job goes on without processes that do not come back: when its mesh becomes smaller,
// for how many ranks the others have room, and who of them has which rank. How many replicas then
// are left says fewer_replicas.h, and where their states come from recovery_plan.h.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"

namespace weir::fleet {

// A loss, as far as it decides about the mesh.
struct MeshLoss {
  bool may_start_anew = true;  // the policy of restarts allows new processes
  bool have_places = true;     // some host takes the place of each host that is lost
  bool is_changing = false;    // the mesh was about to change when the loss came
};
enum class MeshAfterLoss : uint8_t { kStays, kShrinks };
// Returns whether new processes take the places of the lost ones. If they cannot, the mesh shrinks,
// or the job has to start again. A change that has begun is made again with what is left: the lost
// processes of before have left the job.
MeshAfterLoss ChooseMesh(const MeshLoss& loss);

// Returns all workers, in order.
std::vector<WorkerId> AllOf(const IdVector<WorkerId, std::vector<RankId>>& ranks_of);
// Returns for how many ranks those workers of the job have room that are not lost.
// `room_of[worker]` is the number of ranks that the worker had at the start of the job.
int NumRanksLeft(const std::vector<WorkerId>& workers, const std::vector<WorkerId>& lost,
                 const IdVector<WorkerId, size_t>& room_of);

// Returns the ranks of each worker: `num_ranks` ranks over the workers of the job in order, each
// with at most as many as it has room for. A worker may have none. nullopt: they have no room.
std::optional<IdVector<WorkerId, std::vector<RankId>>> SpreadOver(
    const std::vector<WorkerId>& workers, const IdVector<WorkerId, size_t>& room_of, int num_ranks);

// Returns the number of processes of a job that starts again with fewer devices. Each has as many
// devices as the processes of the last start, which were `num_workers` for `devices_before`.
int NumProcessesFor(int64_t devices, int num_workers, int64_t devices_before);

}  // namespace weir::fleet
