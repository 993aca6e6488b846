#include "runtime/transport/ucx_door.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>

namespace weir {
namespace {

constexpr size_t kTokenMax = 64;
constexpr int kSilentSeconds = 2;  // then a connection that says nothing is reset
constexpr int kStrangersPerCall = 64;

thread_local UcxDoor* current_door = nullptr;

// Guarded sockets. Never destroyed: UCX's thread may outlive static objects.
struct Guarded {
  std::mutex mutex;                                     // guards sockets
  std::vector<std::pair<int, std::string>> sockets;     // and their tokens
  std::atomic<int> num_sockets{0};                      // a hint that spares others the lock
};
Guarded& AllGuarded() {
  static Guarded* const guarded = new Guarded();
  return *guarded;
}

std::string TokenOf(int fd) {
  Guarded& guarded = AllGuarded();
  if (guarded.num_sockets.load(std::memory_order_acquire) == 0) return "";
  std::lock_guard<std::mutex> lock(guarded.mutex);
  for (const auto& [socket, token] : guarded.sockets) {
    if (socket == fd) return token;
  }
  return "";
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

bool IsTcp(int family) { return family == AF_INET || family == AF_INET6; }

bool SaysToken(int fd, const std::string& token) {
  char said[kTokenMax];
  const ssize_t size = ::recv(fd, said, token.size(), MSG_DONTWAIT);
  return size == static_cast<ssize_t>(token.size()) && ::CRYPTO_memcmp(said, token.data(), token.size()) == 0;
}

void Reset(int fd) {
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  ::close(fd);
}

}  // namespace

UcxDoor::Scope::Scope(UcxDoor* door) : outer_(std::exchange(current_door, door)) {}
UcxDoor::Scope::~Scope() { current_door = outer_; }

void UcxDoor::AddListener(int fd) {
  Guarded& guarded = AllGuarded();
  std::lock_guard<std::mutex> lock(guarded.mutex);
  guarded.sockets.emplace_back(fd, token_);
  guarded.num_sockets.store(static_cast<int>(guarded.sockets.size()), std::memory_order_release);
  listeners_.push_back(fd);
}

// UCX keeps the descriptors and its own thread may be about to accept once more. On the socket put in their
// place that finds nobody, as it would have; any error would make UCX forget the descriptor and fail later.
void UcxDoor::Close() {
  if (listeners_.empty()) return;
  const int idle = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_un nameless{};
  nameless.sun_family = AF_UNIX;
  if (idle >= 0 && ::bind(idle, reinterpret_cast<const sockaddr*>(&nameless), sizeof(sa_family_t)) == 0 &&
      ::listen(idle, 0) == 0) {
    for (int fd : listeners_) ::dup3(idle, fd, O_CLOEXEC);
  }
  if (idle >= 0) ::close(idle);
  Guarded& guarded = AllGuarded();
  std::lock_guard<std::mutex> lock(guarded.mutex);
  auto& sockets = guarded.sockets;
  sockets.erase(std::remove_if(sockets.begin(), sockets.end(),
                               [this](const auto& socket) {
                                 return std::find(listeners_.begin(), listeners_.end(), socket.first) != listeners_.end();
                               }),
                sockets.end());
  guarded.num_sockets.store(static_cast<int>(sockets.size()), std::memory_order_release);
  listeners_.clear();
}

}  // namespace weir

extern "C" int listen(int fd, int backlog) noexcept {
  static const auto next = weir::Next<int (*)(int, int)>("listen");
  weir::UcxDoor* const door = weir::current_door;
  int family = 0;
  socklen_t size = sizeof(family);
  if (door != nullptr && ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && weir::IsTcp(family)) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &weir::kSilentSeconds, sizeof(weir::kSilentSeconds));
    door->AddListener(fd);
  }
  return next(fd, backlog);
}

extern "C" int connect(int fd, const sockaddr* address, socklen_t size) {
  static const auto next = weir::Next<int (*)(int, const sockaddr*, socklen_t)>("connect");
  const int connected = next(fd, address, size);
  const weir::UcxDoor* const door = weir::current_door;
  if (connected != 0 || door == nullptr || !weir::IsTcp(address->sa_family)) return connected;
  const std::string& token = door->token();
  if (::send(fd, token.data(), token.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(token.size())) return 0;
  errno = ECONNREFUSED;
  return -1;
}

extern "C" int accept(int fd, sockaddr* address, socklen_t* size) {
  static const auto next = weir::Next<int (*)(int, sockaddr*, socklen_t*)>("accept");
  const std::string token = weir::TokenOf(fd);
  if (token.empty()) return next(fd, address, size);
  const socklen_t room = size == nullptr ? 0 : *size;
  for (int i = 0; i < weir::kStrangersPerCall; ++i) {
    if (size != nullptr) *size = room;
    const int accepted = next(fd, address, size);
    if (accepted < 0 || weir::SaysToken(accepted, token)) return accepted;
    weir::Reset(accepted);
  }
  errno = EAGAIN;
  return -1;
}
