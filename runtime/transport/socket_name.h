// A local socket that has a name only for its own process and for those that may look into that
// process. Thread rule: pure functions.
#pragma once

#include <string>

namespace weir::transport {

// Binds the local socket `fd` to a name in a new folder in $TMPDIR, /tmp, /dev/shm or the working
// folder, and takes name and folder away again. Returns a descriptor of the file that has been
// bound, which the caller closes, or -1 with errno if no folder takes a socket. A peer that may use
// /proc/PID/fd/DESCRIPTOR reaches the socket by that path.
//
// The folder does not outlive this call even if this process is killed in its midst: a second
// process, which shares memory and descriptors with this one, makes and removes the folder while
// the calling thread waits. Where the system permits no second process, this process does the work.
int BindWithoutName(int fd);

}  // namespace weir::transport
