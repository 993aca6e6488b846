#include "runtime/control/acknowledged.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/control/socket_address.h"

namespace weir::control {
namespace {

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
    const std::optional<SocketAddress> peer = SocketAddress::PeerOf(descriptor);
    if (!peer.has_value() || peer->text() != address) continue;
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
