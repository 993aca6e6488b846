// Finds connections of the job's processes whose data does not arrive: the system sends the data
// again and again, and no acknowledgement comes. The facts come from /proc, so they show this
// host's side, and only connections with data under way. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weir::launch {

struct StalledConnection {
  pid_t pid = 0;
  std::string local, remote;  // "127.0.0.1:43117"
  int64_t bytes_waiting = 0;  // sent, or to be sent, and not acknowledged
  int times_repeated = 0;
};

// Returns the sockets of these processes whose data was repeated at least `repeats_min` times.
std::vector<StalledConnection> FindStalledConnections(const std::vector<pid_t>& pids,
                                                      int repeats_min = 2);

// Parses a line of /proc/net/tcp. Returns false if the text is no such line, or if the connection
// repeats nothing. `inode` is the socket's.
bool ParseRepeating(const std::string& line, StalledConnection* connection, uint64_t* inode);

}  // namespace weir::launch
