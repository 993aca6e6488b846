// Chooses the address at which the starter of a job listens: one that every host reaches, tried out
// by a connection from every host.
// Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/hosts/hosts_supervisor.h"

namespace weir::hosts {

struct StarterAddress {
  std::string address;                       // without a port
  IdVector<HostId, std::string> interfaces;  // the interface on the way to the address
  IdVector<HostId, std::string> addresses;   // the host's own on that way, without a port
};

// Returns the addresses to try, best first: as ssh tells the host, by the route to the host, and
// the other addresses of this machine.
std::vector<std::string> AddressesToTry(const IdVector<HostId, std::string>& hosts,
                                        const IdVector<HostId, HostFacts>& facts);

// Tries `wanted`, or if that is empty the addresses above. kUnavailable (W0875) with the result of
// every try of each host that reaches none of those that this machine has.
absl::StatusOr<StarterAddress> ChooseStarterAddress(HostsSupervisor* supervisor,
                                                    const IdVector<HostId, std::string>& hosts,
                                                    const std::string& wanted);

}  // namespace weir::hosts
