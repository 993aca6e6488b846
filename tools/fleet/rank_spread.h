// Spreads the ranks of a job over processes and hosts. Starts nothing.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/fleet/fleet.h"
#include "tools/hosts/hosts_supervisor.h"

namespace weir::fleet {

struct RankSpread {
  IdVector<WorkerId, std::vector<RankId>> ranks_of;
  IdVector<WorkerId, HostId> host_of;  // empty: this machine has all of them
};

// Spreads evenly: consecutive ranks share a process, consecutive processes a host. Spares get no
// process, but in the place of lost hosts (FleetOptions). Errors: those of launch::PlaceRanks and
// hosts::PlaceOnHosts.
absl::StatusOr<RankSpread> SpreadRanks(const FleetOptions& options, int num_ranks);

// Returns the number of ranks on each host that has ranks, by host. Neighbours of one machine, such
// as tasks that a scheduler has started there, count as one host. `agents`: of the hosts; empty:
// their machines are not known.
std::vector<int64_t> DevicesByHost(const RankSpread& spread,
                                   const IdVector<HostId, hosts::HostAgent>& agents);
// Returns the number that all hosts have of DevicesByHost. 0 if all ranks share a host, or if the
// hosts have different numbers of ranks.
int64_t DevicesPerHost(const RankSpread& spread, const IdVector<HostId, hosts::HostAgent>& agents);

// Writes into the job where hosts end (MeshSpec.devices_per_host), unless the job says so itself. A
// job that cannot be spread stays as it is: FleetRunner::Open says why. So does the job if the
// hosts have different numbers of ranks. Returns a line for people about that, else nothing.
std::string TellHosts(const FleetOptions& options, proto::Job* job);

}  // namespace weir::fleet
