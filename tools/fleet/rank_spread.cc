#include "tools/fleet/rank_spread.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/hosts/host_placement.h"
#include "tools/launch/placement.h"

namespace weir::fleet {
namespace {

// More devices than any mesh may have (compiler/compile.h).
constexpr int64_t kDevicesEnough = 1 << 20;

// Places processes on the hosts that are not lost.
absl::StatusOr<IdVector<WorkerId, HostId>> PlaceOnLiving(const FleetOptions& options,
                                                         int processes) {
  hosts::HostList living;
  IdVector<HostId, HostId> listed;  // by host of `living`
  for (const HostId host : options.listed_hosts.ids()) {
    if (options.lost_hosts.count(host) > 0) continue;
    living.push_back(options.listed_hosts[host]);
    listed.push_back(host);
  }
  WEIR_ASSIGN_OR_RETURN(auto host_of, hosts::PlaceOnHosts(living, processes));
  for (HostId& host : host_of) host = listed[host];
  return host_of;
}

}  // namespace

absl::StatusOr<RankSpread> SpreadRanks(const FleetOptions& options, int num_ranks) {
  RankSpread spread;
  int processes = options.processes;
  if (options.lost == FleetOptions::Lost::kLeftOut) {
    WEIR_ASSIGN_OR_RETURN(spread.host_of, PlaceOnLiving(options, processes));
  } else if (!options.listed_hosts.empty()) {
    hosts::HostList first = options.listed_hosts;
    first.resize(first.size() - static_cast<size_t>(options.spares));
    if (processes == 0) processes = hosts::NumProcesses(first, num_ranks);
    WEIR_ASSIGN_OR_RETURN(spread.host_of, hosts::PlaceOnHosts(first, processes));
    std::optional<IdVector<WorkerId, HostId>> without_lost =
        ReplaceHosts(options.listed_hosts, options.lost_hosts, spread.host_of);
    if (without_lost.has_value()) spread.host_of = *std::move(without_lost);
  }
  WEIR_ASSIGN_OR_RETURN(auto placement, launch::PlaceRanks(num_ranks, processes));
  for (launch::WorkerPlacement& worker : placement)
    spread.ranks_of.push_back(std::move(worker.ranks));
  return spread;
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

std::vector<int64_t> DevicesByHost(const RankSpread& spread,
                                   const IdVector<HostId, hosts::HostAgent>& agents) {
  const auto machine_of = [&](HostId host) {
    return agents.empty() ? std::string() : agents[host].machine;
  };
  std::vector<int64_t> devices;
  HostId previous;
  for (const WorkerId process : spread.host_of.ids()) {
    const HostId host = spread.host_of[process];
    const bool is_same = host == previous || (previous.has_value() && !machine_of(host).empty() &&
                                              machine_of(host) == machine_of(previous));
    if (!is_same) devices.push_back(0);
    devices.back() += static_cast<int64_t>(spread.ranks_of[process].size());
    previous = host;
  }
  return devices;
}

int64_t DevicesPerHost(const RankSpread& spread, const IdVector<HostId, hosts::HostAgent>& agents) {
  const std::vector<int64_t> devices = DevicesByHost(spread, agents);
  const bool is_even = std::all_of(devices.begin(), devices.end(),
                                   [&](int64_t count) { return count == devices.front(); });
  return devices.size() < 2 || !is_even ? 0 : devices.front();
}

std::string TellHosts(const FleetOptions& options, proto::Job* job) {
  if (job->mesh().devices_per_host() != 0) return "";
  int64_t num_ranks = 1;
  for (const proto::MeshAxisSpec& axis : job->mesh().axis()) {
    if (axis.size() < 1 || axis.size() > kDevicesEnough / num_ranks) return "";
    num_ranks *= axis.size();
  }
  const absl::StatusOr<RankSpread> spread = SpreadRanks(options, static_cast<int>(num_ranks));
  if (!spread.ok()) return "";
  job->mutable_mesh()->set_devices_per_host(DevicesPerHost(*spread, options.hosts));
  std::vector<int64_t> devices = DevicesByHost(*spread, options.hosts);
  std::sort(devices.begin(), devices.end(), std::greater<int64_t>());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  if (devices.size() < 2) return "";
  return absl::StrCat("hosts have ", devices.back(), " to ", devices.front(),
                      " devices of the mesh, so transfers do not go within hosts first; hosts with "
                      "equally many would send fewer bytes between them");
}

}  // namespace weir::fleet
