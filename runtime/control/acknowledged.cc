#include "runtime/control/acknowledged.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace weir::control {
namespace {

// Returns the address of the other end, as ConnectionGate::address writes its own; empty if the
// descriptor is no connection over TCP.
std::string PeerOf(int descriptor) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat(text, ":", ntohs(v4.sin_port));
  }
  if (peer.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
      return absl::StrCat(text, ":", ntohs(v6.sin6_port));
    }
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    return absl::StrCat("[", text, "]:", ntohs(v6.sin6_port));
  }
  return "";
}

void AskWhileIdle(int descriptor) {
  const int on = 1, seconds = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
}

}  // namespace

std::optional<int64_t> SinceAcknowledgedMs(const std::string& address) {
  std::optional<int64_t> latest;
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return latest;
  for (const dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);
    if (PeerOf(descriptor) != address) continue;
    AskWhileIdle(descriptor);
    tcp_info info = {};
    socklen_t size = sizeof(info);
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    const auto age_ms = static_cast<int64_t>(info.tcpi_last_ack_recv);
    latest = std::min(latest.value_or(age_ms), age_ms);
  }
  ::closedir(folder);
  return latest;
}

}  // namespace weir::control
