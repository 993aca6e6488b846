#include "tools/launch/stalled_connections.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weir::launch {
namespace {

constexpr int kRepeatTimer = 1;  // the timer of a socket that repeats data

// Turns "0100007F:A86D" into "127.0.0.1:43117"; an address of version 6 stays as it is.
std::string EndText(const std::string& hex) {
  const std::vector<std::string> parts = absl::StrSplit(hex, ':');
  if (parts.size() != 2) return hex;
  const unsigned long port = std::strtoul(parts[1].c_str(), nullptr, 16);
  if (parts[0].size() != 8) return absl::StrCat("[", parts[0], "]:", port);
  in_addr address;
  address.s_addr = static_cast<uint32_t>(std::strtoul(parts[0].c_str(), nullptr, 16));
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof(text));
  return absl::StrCat(text, ":", port);
}

std::map<uint64_t, pid_t> SocketsOf(const std::vector<pid_t>& pids) {
  std::map<uint64_t, pid_t> owners;
  for (pid_t pid : pids) {
    const std::string folder = absl::StrCat("/proc/", pid, "/fd");
    DIR* directory = ::opendir(folder.c_str());
    if (directory == nullptr) continue;
    while (const dirent* entry = ::readdir(directory)) {
      char target[PATH_MAX];
      const ssize_t size =
          ::readlink(absl::StrCat(folder, "/", entry->d_name).c_str(), target, sizeof(target) - 1);
      if (size <= 0) continue;
      target[size] = '\0';
      unsigned long inode = 0;
      if (std::sscanf(target, "socket:[%lu]", &inode) == 1) owners[inode] = pid;
    }
    ::closedir(directory);
  }
  return owners;
}

}  // namespace

bool ParseRepeating(const std::string& line, StalledConnection* connection, uint64_t* inode) {
  // "sl local remote st tx:rx timer:when repeats uid timeout inode ..."
  const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (fields.size() < 10 || fields[0].empty() || fields[0].back() != ':') return false;
  const std::vector<std::string> queues = absl::StrSplit(fields[4], ':');
  const std::vector<std::string> timer = absl::StrSplit(fields[5], ':');
  if (queues.size() != 2 || timer.size() != 2 || !absl::SimpleAtoi(fields[9], inode)) return false;
  connection->local = EndText(fields[1]);
  connection->remote = EndText(fields[2]);
  connection->bytes_waiting = static_cast<int64_t>(std::strtoull(queues[0].c_str(), nullptr, 16));
  connection->times_repeated = static_cast<int>(std::strtoul(fields[6].c_str(), nullptr, 16));
  return std::strtol(timer[0].c_str(), nullptr, 16) == kRepeatTimer &&
         connection->times_repeated > 0 && connection->bytes_waiting > 0;
}

std::vector<StalledConnection> FindStalledConnections(const std::vector<pid_t>& pids,
                                                      int repeats_min) {
  const std::map<uint64_t, pid_t> owners = SocketsOf(pids);
  std::vector<StalledConnection> stalled;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      StalledConnection connection;
      uint64_t inode = 0;
      if (!ParseRepeating(line, &connection, &inode) || connection.times_repeated < repeats_min)
        continue;
      const auto owner = owners.find(inode);
      if (owner == owners.end()) continue;
      connection.pid = owner->second;
      stalled.push_back(std::move(connection));
    }
  }
  return stalled;
}

}  // namespace weir::launch
