#include "tools/launch/stalled_connections.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weir::launch {
namespace {

// Timers of a socket that repeats data, and of a socket that has data and may not send it now: the
// receiver has no room, or the way out of this host drops what is sent.
constexpr int kRepeatTimer = 1, kProbeTimer = 4;

struct Socket {
  StalledConnection connection;
  int64_t bytes_unread = 0;
  int timer = 0;
  uint64_t inode = 0;
};

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

// Parses a line of /proc/net/tcp. Returns false if the text is no such line.
bool Parse(const std::string& line, Socket* socket) {
  // "sl local remote st tx:rx timer:when repeats uid timeout inode ..."
  const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (fields.size() < 10 || fields[0].empty() || fields[0].back() != ':') return false;
  const std::vector<std::string> queues = absl::StrSplit(fields[4], ':');
  const std::vector<std::string> timer = absl::StrSplit(fields[5], ':');
  if (queues.size() != 2 || timer.size() != 2 || !absl::SimpleAtoi(fields[9], &socket->inode))
    return false;
  const auto number = [](const std::string& text) {
    return std::strtoull(text.c_str(), nullptr, 16);
  };
  StalledConnection& connection = socket->connection;
  connection.local = EndText(fields[1]);
  connection.remote = EndText(fields[2]);
  connection.bytes_waiting = static_cast<int64_t>(number(queues[0]));
  connection.times_repeated = static_cast<int>(number(fields[6]));
  socket->bytes_unread = static_cast<int64_t>(number(queues[1]));
  socket->timer = static_cast<int>(number(timer[0]));
  return true;
}

}  // namespace

std::vector<StalledConnection> StalledAmong(const std::vector<std::string>& lines,
                                            const std::map<uint64_t, pid_t>& owners) {
  std::vector<Socket> sockets;
  std::map<std::string, int64_t> unread;  // by the ends of the connection, the own first
  for (const std::string& line : lines) {
    Socket socket;
    if (!Parse(line, &socket)) continue;
    unread[absl::StrCat(socket.connection.local, " ", socket.connection.remote)] =
        socket.bytes_unread;
    sockets.push_back(std::move(socket));
  }
  std::vector<StalledConnection> stalled;
  for (Socket& socket : sockets) {
    StalledConnection& connection = socket.connection;
    const auto owner = owners.find(socket.inode);
    if (owner == owners.end() || connection.bytes_waiting == 0) continue;
    // Where the other end cannot be seen, a receiver without room is the likelier reason.
    const auto there = unread.find(absl::StrCat(connection.remote, " ", connection.local));
    const bool is_held = socket.timer == kProbeTimer && there != unread.end() && there->second == 0;
    const bool is_repeated = socket.timer == kRepeatTimer && connection.times_repeated > 0;
    if (!is_held && !is_repeated) continue;
    if (is_held) connection.times_repeated = 0;
    connection.pid = owner->second;
    stalled.push_back(std::move(connection));
  }
  return stalled;
}

std::vector<StalledConnection> FindStalledConnections(const std::vector<pid_t>& pids) {
  std::vector<std::string> lines;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) lines.push_back(line);
  }
  return StalledAmong(lines, SocketsOf(pids));
}

}  // namespace weir::launch
