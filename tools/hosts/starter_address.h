// Chooses the address at which the starter of a job listens: one that every host reaches, tried out
// by a connection from every host.
// Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/hosts/hosts_supervisor.h"

namespace weir::hosts {

struct StarterAddress {
  std::string address;                  // without a port
  std::vector<std::string> interfaces;  // by host: the interface on the way to the address
  std::vector<std::string> addresses;   // by host: its own on that way, without a port
};

// Returns the addresses to try, best first: as ssh tells the host, by the route to the host, and
// the other addresses of this machine.
std::vector<std::string> AddressesToTry(const std::vector<std::string>& hosts,
                                        const std::vector<HostFacts>& facts);

// Tries `wanted`, or if that is empty the addresses above. kUnavailable (W0875) with the result of
// every try of each host that reaches none of those that this machine has.
absl::StatusOr<StarterAddress> ChooseStarterAddress(HostsSupervisor* supervisor,
                                                    const std::vector<std::string>& hosts,
                                                    const std::string& wanted);

}  // namespace weir::hosts
