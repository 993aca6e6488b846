// Connections of the job's processes whose data does not arrive: the system sends it again and
// again and nobody says that it has come. From /proc, so of this host's side; only connections with
// something under way show. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weir {

struct StalledConnection {
  pid_t pid = 0;
  std::string local, remote;  // "127.0.0.1:43117"
  int64_t bytes_waiting = 0;  // sent, or to be sent, and not acknowledged
  int times_repeated = 0;
};

// Of the sockets of these processes, those whose data was repeated at least `repeats_min` times.
std::vector<StalledConnection> FindStalledConnections(const std::vector<pid_t>& pids,
                                                      int repeats_min = 2);

// A line of /proc/net/tcp: false if it is none, or its connection does not repeat anything. `inode`
// is the socket's.
bool ParseRepeating(const std::string& line, StalledConnection* connection, uint64_t* inode);

}  // namespace weir
