// Tries whether the hosts of a job reach each other, as their tensors will, before anything is
// started: a firewall between two hosts otherwise shows in the first step, and late.
// Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/hosts/hosts_supervisor.h"

namespace weir::hosts {

// Every host tries at most this many others, which are spread evenly over the list.
inline constexpr size_t kHostsTriedMax = 16;

// `addresses[h]` is the address of host h that carries its tensors, without a port; empty: the host
// takes no part. An address at which a host cannot listen for probes, such as one of the loopback
// interface, is not tried. kUnavailable (W0886) with each host and what it met at those that it
// does not reach. Takes a moment, and at most 2 s for each address that is not reached.
absl::Status CheckWays(HostsSupervisor* supervisor, const IdVector<HostId, std::string>& hosts,
                       const IdVector<HostId, std::string>& addresses);

}  // namespace weir::hosts
