// Which user a TCP connection of this machine comes from. The system knows: both ends are sockets
// of its own. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <optional>

namespace weir {

// The user at the other end of an accepted connection, as this process's user namespace numbers it.
// nullopt if the other end is on another machine, has closed already, or the system does not tell.
std::optional<uid_t> UserOfPeer(int descriptor);

}  // namespace weir
