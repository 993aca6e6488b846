#include "tests/chaos/recovery_memory.h"

#include <algorithm>
#include <map>
#include <string>

#include "tests/chaos/recovery_model.h"

namespace weir::chaos {

bool HasAll(int64_t step, const fleet::StateLayout& layout, uint32_t mesh,
            const std::vector<MemoryOfWorker>& memory) {
  std::map<std::string, std::vector<bool>> has;
  for (const auto& [name, tensor] : RecoveryTensors())
    has[name].resize(static_cast<size_t>(tensor.shape[0]));
  const auto add = [&](const fleet::HeldState& shard) {
    const auto begin = has[shard.name].begin() + shard.slice.offset[0];
    std::fill_n(begin, shard.slice.shape[0], true);
  };
  for (const MemoryOfWorker& of : memory) {
    const fleet::WorkerStanding& standing = of.standing;
    const bool has_copies = of.meshes.copies == mesh;
    const bool has_own =
        (of.meshes.ranks == mesh && standing.resting_step == step) ||
        (has_copies && (standing.kept_step == step || standing.older_kept_step == step));
    if (has_own) {
      for (const RankId rank : layout.ranks_of[of.worker])
        std::for_each(layout.shards_of[rank].begin(), layout.shards_of[rank].end(), add);
    }
    for (const fleet::WholeCopy& copy : standing.guarded) {
      if (!has_copies || copy.step != step || !layout.lone.Has(copy.charge)) continue;
      for (const fleet::GuardedShard& lone : layout.lone[copy.charge]) {
        for (const fleet::HeldState& shard : layout.shards_of[lone.rank]) {
          if (shard.name == lone.name) add(shard);
        }
      }
    }
  }
  return std::all_of(has.begin(), has.end(), [](const auto& tensor) {
    return std::all_of(tensor.second.begin(), tensor.second.end(), [](bool one) { return one; });
  });
}

std::set<int64_t> StepsIn(const std::vector<MemoryOfWorker>& memory) {
  std::set<int64_t> steps;
  for (const MemoryOfWorker& of : memory) {
    for (const int64_t step :
         {of.standing.kept_step, of.standing.older_kept_step, of.standing.resting_step}) {
      if (step >= 0) steps.insert(step);
    }
    for (const fleet::WholeCopy& copy : of.standing.guarded) steps.insert(copy.step);
  }
  return steps;
}

}  // namespace weir::chaos
