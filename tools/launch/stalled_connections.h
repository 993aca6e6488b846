// Finds connections of the job's processes whose data does not arrive: the system sends the data
// again and again, and no acknowledgement comes; or the system cannot even send the data, though
// the receiver has taken all that came. The facts come from /proc, so they show this host's side,
// and only connections with data under way. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weir::launch {

struct StalledConnection {
  pid_t pid = 0;
  std::string local, remote;  // "127.0.0.1:43117"
  int64_t bytes_waiting = 0;  // sent, or to be sent, and not acknowledged
  int times_repeated = 0;     // 0: it could not be sent
};

// Returns the stalled connections of these processes. A connection may stall for a moment.
std::vector<StalledConnection> FindStalledConnections(const std::vector<pid_t>& pids);

// The same from the lines of /proc/net/tcp. `owners` are the processes by the inodes of sockets.
std::vector<StalledConnection> StalledAmong(const std::vector<std::string>& lines,
                                            const std::map<uint64_t, pid_t>& owners);

}  // namespace weir::launch
