// Finds the user from which a TCP connection of this machine comes. The system knows the user,
// because both ends are sockets of this machine. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <optional>

namespace weir::control {

// Returns the user at the other end of an accepted connection, as this process's user namespace
// numbers users. nullopt if the other end is on another machine, has closed already, or the system
// does not tell.
std::optional<uid_t> UserOfPeer(int descriptor);

}  // namespace weir::control
