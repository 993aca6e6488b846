#include "tools/fleet/host_places.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "runtime/base/status.h"
#include "tools/hosts/host_placement.h"

namespace weir::fleet {

hosts::HostList WithoutSpares(const hosts::HostList& listed, int spares) {
  hosts::HostList first = listed;
  first.resize(first.size() - static_cast<size_t>(spares));
  return first;
}

absl::StatusOr<IdVector<WorkerId, HostId>> PlaceAtStart(const hosts::HostList& listed, int spares,
                                                        const std::set<HostId>& lost,
                                                        int num_processes) {
  WEIR_ASSIGN_OR_RETURN(auto host_of,
                        hosts::PlaceOnHosts(WithoutSpares(listed, spares), num_processes));
  std::optional<IdVector<WorkerId, HostId>> without_lost = ReplaceHosts(listed, lost, host_of);
  return without_lost.has_value() ? *std::move(without_lost) : std::move(host_of);
}

absl::StatusOr<IdVector<WorkerId, HostId>> PlaceOnLiving(const hosts::HostList& listed,
                                                         const std::set<HostId>& lost,
                                                         int num_processes) {
  hosts::HostList living;
  IdVector<HostId, HostId> number_of;  // in `listed`, by host of `living`
  for (const HostId host : listed.ids()) {
    if (lost.count(host) > 0) continue;
    living.push_back(listed[host]);
    number_of.push_back(host);
  }
  WEIR_ASSIGN_OR_RETURN(auto host_of, hosts::PlaceOnHosts(living, num_processes));
  for (HostId& host : host_of) host = number_of[host];
  return host_of;
}

std::optional<IdVector<WorkerId, HostId>> ReplaceHosts(const hosts::HostList& listed,
                                                       const std::set<HostId>& lost,
                                                       const IdVector<WorkerId, HostId>& host_of) {
  IdVector<HostId, int> counts(listed.size(), 0);
  for (const HostId host : host_of) ++counts[host];
  const int fullest = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  const auto room = [&](HostId host) {
    if (lost.count(host) > 0) return 0;
    if (listed[host].slots > 0) return std::max(listed[host].slots - counts[host], 0);
    return counts[host] == 0 ? fullest : 0;
  };
  // The best host for `count` workers that belong together; none: no host has room for one.
  const auto best_for = [&](int count) {
    HostId best;
    for (const HostId host : listed.ids()) {
      const auto rank = [&](HostId of) {
        return std::tuple(std::min(room(of), count), counts[of] == 0);
      };
      if (room(host) > 0 && (!best.has_value() || rank(host) > rank(best))) best = host;
    }
    return best;
  };
  IdVector<WorkerId, HostId> places = host_of;
  std::map<HostId, std::vector<WorkerId>> moving;
  for (const WorkerId worker : host_of.ids()) {
    if (lost.count(host_of[worker]) > 0) moving[host_of[worker]].push_back(worker);
  }
  for (auto& [host, workers] : moving) {
    while (!workers.empty()) {
      const int count = static_cast<int>(workers.size());
      const HostId to = best_for(count);
      if (!to.has_value()) return std::nullopt;
      const int taken = std::min(room(to), count);
      for (int i = 0; i < taken; ++i) places[workers[static_cast<size_t>(i)]] = to;
      counts[to] += taken;
      workers.erase(workers.begin(), workers.begin() + taken);
    }
  }
  return places;
}

std::optional<IdVector<WorkerId, HostId>> ReplaceHostsOf(
    const std::vector<WorkerId>& workers, const hosts::HostList& listed,
    const std::set<HostId>& lost, const IdVector<WorkerId, HostId>& host_of) {
  IdVector<WorkerId, HostId> of_job;  // of_job[i]: of the i-th worker of the job
  for (const WorkerId worker : workers) of_job.push_back(host_of[worker]);
  const std::optional<IdVector<WorkerId, HostId>> places = ReplaceHosts(listed, lost, of_job);
  if (!places.has_value()) return std::nullopt;
  IdVector<WorkerId, HostId> all = host_of;
  for (const WorkerId i : places->ids())
    all[workers[static_cast<size_t>(i.value())]] = (*places)[i];
  return all;
}

}  // namespace weir::fleet
