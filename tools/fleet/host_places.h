// Decides which host runs which process of a job, at its start and after the loss of hosts: hosts
// in reserve and free slots take the place of hosts that are lost. Starts nothing. Thread rule:
// pure functions.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/hosts/host_list.h"

namespace weir::fleet {

// Returns the list without the `spares` hosts at its end. Precondition: there are more hosts.
hosts::HostList WithoutSpares(const hosts::HostList& listed, int spares);

// Returns the host of each process of a job that starts. Spares get processes in the place of lost
// hosts only. If no hosts have room for the processes of lost ones, these hosts must come, and keep
// their processes. Errors are those of hosts::PlaceOnHosts.
absl::StatusOr<IdVector<WorkerId, HostId>> PlaceAtStart(const hosts::HostList& listed, int spares,
                                                        const std::set<HostId>& lost,
                                                        int num_processes);

// Returns the host of each process of a job that starts without lost hosts. Spares count as other
// hosts do. Errors are those of hosts::PlaceOnHosts.
absl::StatusOr<IdVector<WorkerId, HostId>> PlaceOnLiving(const hosts::HostList& listed,
                                                         const std::set<HostId>& lost,
                                                         int num_processes);

// Returns `host_of` with the workers of lost hosts on others: those of one host together on a host
// without workers, or else where slots are free. A host that is listed without slots has room for
// as many workers as the fullest host has, and none beside its own. nullopt: there is no room.
std::optional<IdVector<WorkerId, HostId>> ReplaceHosts(const hosts::HostList& listed,
                                                       const std::set<HostId>& lost,
                                                       const IdVector<WorkerId, HostId>& host_of);

// The hosts of workers: at the start of the job, and now. A worker that is away has its last host.
struct WorkerPlaces {
  IdVector<WorkerId, HostId> at_start, now;
};
// Returns the hosts of the workers of a job from now on. Those of lost hosts move as in
// ReplaceHosts. A worker of `starting`, which has no process, moves likewise if its host has no
// room for it: while it was away, workers of a lost host may have moved there. A host that is
// listed without slots has room for as many workers as the fullest host had at the start. The
// places of workers that are not of the job stay, and take no room. nullopt: there is no room.
// Precondition: `workers` has those of `starting`.
std::optional<IdVector<WorkerId, HostId>> PlacesFromNowOn(const std::vector<WorkerId>& workers,
                                                          const std::vector<WorkerId>& starting,
                                                          const hosts::HostList& listed,
                                                          const std::set<HostId>& lost,
                                                          const WorkerPlaces& places);

}  // namespace weir::fleet
