#include "tools/fleet/mesh_change.h"

#include <algorithm>

namespace weir::fleet {

MeshAfterLoss ChooseMesh(const MeshLoss& loss) {
  const bool stays = loss.may_start_anew && loss.have_places && !loss.is_changing;
  return stays ? MeshAfterLoss::kStays : MeshAfterLoss::kShrinks;
}

std::vector<WorkerId> AllOf(const IdVector<WorkerId, std::vector<RankId>>& ranks_of) {
  std::vector<WorkerId> workers;
  for (const WorkerId worker : ranks_of.ids()) workers.push_back(worker);
  return workers;
}

int NumRanksLeft(const std::vector<WorkerId>& workers, const std::vector<WorkerId>& lost,
                 const IdVector<WorkerId, size_t>& room_of) {
  size_t count = 0;
  for (const WorkerId worker : workers) {
    if (std::count(lost.begin(), lost.end(), worker) == 0) count += room_of[worker];
  }
  return static_cast<int>(count);
}

std::optional<IdVector<WorkerId, std::vector<RankId>>> SpreadOver(
    const std::vector<WorkerId>& workers, const IdVector<WorkerId, size_t>& room_of,
    int num_ranks) {
  IdVector<WorkerId, std::vector<RankId>> ranks_of(room_of.size());
  int next = 0;
  for (const WorkerId worker : workers) {
    while (next < num_ranks && ranks_of[worker].size() < room_of[worker])
      ranks_of[worker].push_back(RankId(next++));
  }
  if (next < num_ranks) return std::nullopt;
  return ranks_of;
}

int NumProcessesFor(int64_t devices, int num_workers, int64_t devices_before) {
  return static_cast<int>(std::max<int64_t>(1, num_workers * devices / devices_before));
}

}  // namespace weir::fleet
