// The name of this host, and its machine. Thread rule: pure functions.
#pragma once

#include <string>

namespace weir::hosts {

// Returns the name that this host gives itself.
std::string HostName();

// Returns a text that no two machines share, and no machine keeps when it starts anew: the same in
// all containers and tasks of a machine. Empty if the system does not tell.
std::string MachineId();

// Returns whether a host that a user lists is this machine itself: its own name, or localhost.
bool IsHere(const std::string& host);

}  // namespace weir::hosts
