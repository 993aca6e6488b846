#include "tools/fleet/rank_spread.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/job/stage_meshes.h"
#include "runtime/base/status.h"
#include "tools/fleet/host_places.h"
#include "tools/hosts/host_placement.h"
#include "tools/launch/placement.h"

namespace weir::fleet {
namespace {

// More devices than any mesh may have (compiler/compile.h).
constexpr int64_t kDevicesEnough = 1 << 20;

}  // namespace

absl::StatusOr<RankSpread> SpreadRanks(const FleetOptions& options, int num_ranks) {
  RankSpread spread;
  int processes = options.processes;
  if (options.lost == FleetOptions::Lost::kLeftOut) {
    WEIR_ASSIGN_OR_RETURN(spread.host_of,
                          PlaceOnLiving(options.listed_hosts, options.lost_hosts, processes));
  } else if (!options.listed_hosts.empty()) {
    if (processes == 0) {
      processes =
          hosts::NumProcesses(WithoutSpares(options.listed_hosts, options.spares), num_ranks);
    }
    WEIR_ASSIGN_OR_RETURN(spread.host_of, PlaceAtStart(options.listed_hosts, options.spares,
                                                       options.lost_hosts, processes));
  }
  WEIR_ASSIGN_OR_RETURN(auto placement, launch::PlaceRanks(num_ranks, processes));
  for (launch::WorkerPlacement& worker : placement)
    spread.ranks_of.push_back(std::move(worker.ranks));
  return spread;
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
  const int64_t num_ranks = compiler::NumDevices(*job, kDevicesEnough + 1);
  if (num_ranks > kDevicesEnough) return "";
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
