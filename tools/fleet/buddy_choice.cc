#include "tools/fleet/buddy_choice.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

namespace weir::fleet {

IdVector<WorkerId, std::optional<WorkerId>> ChooseBuddies(
    const IdVector<WorkerId, std::string>& host_of) {
  IdVector<WorkerId, std::optional<WorkerId>> buddies(host_of.size());
  if (host_of.size() < 2) return buddies;
  std::map<std::string, std::vector<WorkerId>> workers_of;
  for (const WorkerId worker : host_of.ids()) workers_of[host_of[worker]].push_back(worker);
  // The workers in the order of their hosts, the host with most workers first.
  std::vector<std::vector<WorkerId>> groups;
  for (auto& [host, workers] : workers_of) groups.push_back(std::move(workers));
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::vector<WorkerId> order;
  for (const std::vector<WorkerId>& group : groups)
    order.insert(order.end(), group.begin(), group.end());
  const size_t most = groups.front().size(), others = order.size() - most;
  if (others == 0 || most <= others) {
    // A shift by the size of the largest group leaves every group.
    const size_t shift = others == 0 ? 1 : most;
    for (size_t i = 0; i < order.size(); ++i) buddies[order[i]] = order[(i + shift) % order.size()];
    return buddies;
  }
  for (size_t i = 0; i < most; ++i) buddies[order[i]] = order[most + i % others];
  for (size_t i = 0; i < others; ++i) buddies[order[most + i]] = order[i];
  return buddies;
}

IdVector<WorkerId, std::optional<WorkerId>> ChooseBuddiesOf(
    const std::vector<WorkerId>& workers, const IdVector<WorkerId, std::string>& host_of) {
  IdVector<WorkerId, std::string> host_of_job;  // host_of_job[i]: of the i-th worker of the job
  for (const WorkerId worker : workers) host_of_job.push_back(host_of[worker]);
  const IdVector<WorkerId, std::optional<WorkerId>> chosen = ChooseBuddies(host_of_job);
  IdVector<WorkerId, std::optional<WorkerId>> buddy_of(host_of.size());
  for (const WorkerId i : chosen.ids()) {
    if (!chosen[i].has_value()) continue;
    buddy_of[workers[static_cast<size_t>(i.value())]] =
        workers[static_cast<size_t>(chosen[i]->value())];
  }
  return buddy_of;
}

BuddyNeed ChooseNeed(const std::vector<WorkerId>& workers,
                     const IdVector<WorkerId, std::vector<GuardedShard>>& lone) {
  if (workers.size() < 2) return BuddyNeed::kOneProcess;
  const bool all_have_replicas = std::all_of(
      lone.begin(), lone.end(), [](const std::vector<GuardedShard>& of) { return of.empty(); });
  return all_have_replicas ? BuddyNeed::kAllReplicas : BuddyNeed::kCopies;
}

}  // namespace weir::fleet
