// The name of this host. Thread rule: pure functions.
#pragma once

#include <string>

namespace weir::hosts {

// Returns the name that this host gives itself.
std::string HostName();

// Returns whether a host that a user lists is this machine itself: its own name, or localhost.
bool IsHere(const std::string& host);

}  // namespace weir::hosts
