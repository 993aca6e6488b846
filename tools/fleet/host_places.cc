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
  std::vector<WorkerId> workers;
  for (const WorkerId worker : host_of.ids()) workers.push_back(worker);
  return PlacesFromNowOn(workers, {}, listed, lost, {host_of, host_of});
}

std::optional<IdVector<WorkerId, HostId>> PlacesFromNowOn(const std::vector<WorkerId>& workers,
                                                          const std::vector<WorkerId>& starting,
                                                          const hosts::HostList& listed,
                                                          const std::set<HostId>& lost,
                                                          const WorkerPlaces& places) {
  IdVector<HostId, int> counts(listed.size(), 0), at_start(listed.size(), 0);
  for (const HostId host : places.at_start) ++at_start[host];
  const int fullest = at_start.empty() ? 0 : *std::max_element(at_start.begin(), at_start.end());
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
  std::map<HostId, std::vector<WorkerId>> moving;
  const auto stay_or_move = [&](WorkerId worker, bool has_room) {
    const HostId host = places.now[worker];
    if (lost.count(host) == 0 && has_room) {
      ++counts[host];
    } else {
      moving[host].push_back(worker);
    }
  };
  for (const WorkerId worker : workers) {
    const bool starts = std::count(starting.begin(), starting.end(), worker) > 0;
    if (!starts) stay_or_move(worker, true);
  }
  for (const WorkerId worker : starting) {
    const HostId host = places.now[worker];
    const int most = listed[host].slots > 0 ? listed[host].slots : fullest;
    stay_or_move(worker, counts[host] < std::max(most, at_start[host]));
  }
  IdVector<WorkerId, HostId> from_now_on = places.now;
  for (auto& [host, together] : moving) {
    std::sort(together.begin(), together.end());
    while (!together.empty()) {
      const int count = static_cast<int>(together.size());
      const HostId to = best_for(count);
      if (!to.has_value()) return std::nullopt;
      const int taken = std::min(room(to), count);
      for (int i = 0; i < taken; ++i) from_now_on[together[static_cast<size_t>(i)]] = to;
      counts[to] += taken;
      together.erase(together.begin(), together.begin() + taken);
    }
  }
  return from_now_on;
}

}  // namespace weir::fleet
