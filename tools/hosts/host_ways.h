// Tries whether the hosts of a job reach each other, as their tensors will, before anything is
// started: a firewall between two hosts otherwise shows in the first step, and late.
// Thread rule: one thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/hosts/hosts_supervisor.h"

namespace weir::hosts {

// Returns the interface of a host that has the name; null if none that is up has it.
const NetworkInterface* InterfaceNamed(const HostFacts& facts, const std::string& name);
// Returns "lo, eth0": the interfaces of a host that are up.
std::string InterfaceNames(const HostFacts& facts);

// Returns the address of the interface on each host, by host, without a port: of IPv4, if it has
// one. It is empty where the interface has no address but a link-local one, and for a host that is
// not used. Rejected (W0887) with the interfaces of each host if a used host has none of the name.
absl::StatusOr<IdVector<HostId, std::string>> AddressesOn(
    const std::string& interface, const IdVector<HostId, std::string>& hosts,
    const IdVector<HostId, HostFacts>& facts, const std::set<HostId>& used);

// Every host tries at most this many others, which are spread evenly over the list.
inline constexpr size_t kHostsTriedMax = 16;

// `addresses[h]` is the address of host h that carries its tensors, without a port; empty: the host
// takes no part. An address at which a host cannot listen for probes, such as one of the loopback
// interface, is not tried. kUnavailable (W0886) with each host and what it met at those that it
// does not reach. Takes a moment, and at most 2 s for each address that is not reached.
absl::Status CheckWays(HostsSupervisor* supervisor, const IdVector<HostId, std::string>& hosts,
                       const IdVector<HostId, std::string>& addresses);

}  // namespace weir::hosts
