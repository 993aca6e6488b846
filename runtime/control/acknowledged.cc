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

constexpr int kAskAfterS = 1;

int OptionOf(int descriptor, int level, int name) {
  int value = 0;
  socklen_t size = sizeof(value);
  return ::getsockopt(descriptor, level, name, &value, &size) == 0 ? value : 0;
}

void AskWhileIdle(int descriptor) {
  // Whenever the idle time is set on a connection that has been idle for longer, the system asks at
  // once, and the system gives the connection up after some questions without an answer.
  if (OptionOf(descriptor, SOL_SOCKET, SO_KEEPALIVE) != 0 &&
      OptionOf(descriptor, IPPROTO_TCP, TCP_KEEPIDLE) == kAskAfterS)
    return;
  const int on = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &kAskAfterS, sizeof(kAskAfterS));
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &kAskAfterS, sizeof(kAskAfterS));
}

}  // namespace

std::optional<int64_t> SinceAcknowledgedMs(int descriptor) {
  AskWhileIdle(descriptor);
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return static_cast<int64_t>(info.tcpi_last_ack_recv);
}

std::optional<int64_t> SinceAcknowledgedMs(const std::string& address) {
  std::optional<int64_t> latest;
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return latest;
  for (const dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);
    const std::optional<SocketAddress> peer = SocketAddress::PeerOf(descriptor);
    if (!peer.has_value() || peer->text() != address) continue;
    const std::optional<int64_t> age_ms = SinceAcknowledgedMs(descriptor);
    if (age_ms.has_value()) latest = std::min(latest.value_or(*age_ms), *age_ms);
  }
  ::closedir(folder);
  return latest;
}

}  // namespace weir::control
