// Decides which host runs which worker process of a job. Starts nothing.
// Thread rule: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/hosts/host_list.h"

namespace weir::hosts {

// Returns the number of processes that a job of `num_ranks` ranks has on these hosts if the user
// names none: the slots together, where a host without slots counts as one, and at most one
// process for each rank.
int NumProcesses(const HostList& hosts, int num_ranks);

// Returns the host of each process. Consecutive processes share a host, because
// neighbouring ranks exchange most. Hosts get equal numbers of processes as far as their slots
// allow; the first hosts get the rest. Rejected (W0876) if the hosts have fewer slots together.
absl::StatusOr<IdVector<WorkerId, HostId>> PlaceOnHosts(const HostList& hosts, int num_processes);

}  // namespace weir::hosts
