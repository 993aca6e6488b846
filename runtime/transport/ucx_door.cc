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
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/socket_name.h"

namespace weir::transport {
namespace {

constexpr size_t kTokenMax = 64;
constexpr int kSilentSeconds = 2;  // then a connection that says nothing is reset
constexpr int kStrangersPerCall = 64;

thread_local UcxDoor* current_door = nullptr;

// The name of a local socket under /proc stands for a descriptor that holds the file to which the
// socket was bound. The file has lost its own name, and /proc/PID/fd is closed to other users.
struct PrivateName {
  int file = -1;
  std::string path;
};

// Guarded holds the guarded sockets, and is never destroyed, because UCX's thread may outlive
// static objects.
struct Guarded {
  Mutex mutex;
  std::vector<std::pair<int, std::string>> sockets ABSL_GUARDED_BY(mutex);  // and their tokens
  std::map<int, PrivateName> names ABSL_GUARDED_BY(mutex);                  // by socket
  std::atomic<int> num_sockets{0};  // of both; a hint that spares others the lock

  void Count() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    num_sockets.store(static_cast<int>(sockets.size() + names.size()), std::memory_order_release);
  }
};
Guarded& AllGuarded() {
  static Guarded* const guarded = new Guarded();
  return *guarded;
}

std::string TokenOf(int fd) {
  Guarded& guarded = AllGuarded();
  if (guarded.num_sockets.load(std::memory_order_acquire) == 0) return "";
  MutexLock lock(&guarded.mutex);
  for (const auto& [socket, token] : guarded.sockets) {
    if (socket == fd) return token;
  }
  return "";
}

std::string PrivatePathOf(int fd) {
  Guarded& guarded = AllGuarded();
  if (guarded.num_sockets.load(std::memory_order_acquire) == 0) return "";
  MutexLock lock(&guarded.mutex);
  const auto found = guarded.names.find(fd);
  return found == guarded.names.end() ? "" : found->second.path;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

int FamilyOf(int fd) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof(family);
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size);
  return family;
}

bool IsTcp(int family) { return family == AF_INET || family == AF_INET6; }

bool SaysToken(int fd, const std::string& token) {
  char said[kTokenMax];
  const ssize_t size = ::recv(fd, said, token.size(), MSG_DONTWAIT);
  return size == static_cast<ssize_t>(token.size()) &&
         ::CRYPTO_memcmp(said, token.data(), token.size()) == 0;
}

// Returns whether an accept failed because there is no connection: the door is closed, perhaps
// since this moment. UCX must hear EAGAIN then. Any other error makes UCX delete its listener while
// the worker still has it, and UCX fails later.
bool IsClosedDoor(int fd) { return errno == EINVAL && FamilyOf(fd) == AF_UNIX; }

void Reset(int fd) {
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  ::close(fd);
}

}  // namespace

UcxDoor::Scope::Scope(UcxDoor* door) : outer_(std::exchange(current_door, door)) {}
UcxDoor::Scope::~Scope() { current_door = outer_; }

UcxDoor::~UcxDoor() { Release(); }

void UcxDoor::Release() {
  Close();
  Guarded& guarded = AllGuarded();
  MutexLock lock(&guarded.mutex);
  for (int fd : private_sockets_) {
    const auto found = guarded.names.find(fd);
    if (found == guarded.names.end()) continue;
    ::close(found->second.file);
    guarded.names.erase(found);
  }
  private_sockets_.clear();
  guarded.Count();
}

void UcxDoor::AddListener(int fd) {
  Guarded& guarded = AllGuarded();
  MutexLock lock(&guarded.mutex);
  guarded.sockets.emplace_back(fd, token_);
  guarded.Count();
  listeners_.push_back(fd);
}

bool UcxDoor::BindPrivately(int fd) {
  const int file = BindWithoutName(fd);
  if (file < 0) return false;
  Guarded& guarded = AllGuarded();
  MutexLock lock(&guarded.mutex);
  guarded.names[fd] = {file, absl::StrCat("/proc/", ::getpid(), "/fd/", file)};
  guarded.Count();
  private_sockets_.push_back(fd);
  return true;
}

// UCX keeps the descriptors, and its own thread may be about to accept once more. The socket put in
// their place has no name, so no process can connect; see accept below for the result that UCX gets
// there.
void UcxDoor::Close() {
  if (listeners_.empty()) return;
  const int idle = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (idle >= 0) {
    for (int fd : listeners_) ::dup3(idle, fd, O_CLOEXEC);
    ::close(idle);
  }
  Guarded& guarded = AllGuarded();
  MutexLock lock(&guarded.mutex);
  auto& sockets = guarded.sockets;
  sockets.erase(std::remove_if(sockets.begin(), sockets.end(),
                               [this](const auto& socket) {
                                 return std::find(listeners_.begin(), listeners_.end(),
                                                  socket.first) != listeners_.end();
                               }),
                sockets.end());
  guarded.Count();
  listeners_.clear();
}

}  // namespace weir::transport

extern "C" int listen(int fd, int backlog) noexcept {
  static const auto next = weir::transport::Next<int (*)(int, int)>("listen");
  weir::transport::UcxDoor* const door = weir::transport::current_door;
  if (door != nullptr && weir::transport::IsTcp(weir::transport::FamilyOf(fd))) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &weir::transport::kSilentSeconds,
                 sizeof(weir::transport::kSilentSeconds));
    door->AddListener(fd);
  }
  return next(fd, backlog);
}

extern "C" int connect(int fd, const sockaddr* address, socklen_t size) {
  static const auto next =
      weir::transport::Next<int (*)(int, const sockaddr*, socklen_t)>("connect");
  const int connected = next(fd, address, size);
  const weir::transport::UcxDoor* const door = weir::transport::current_door;
  if (connected != 0 || door == nullptr || !weir::transport::IsTcp(address->sa_family))
    return connected;
  const std::string& token = door->token();
  if (::send(fd, token.data(), token.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(token.size()))
    return 0;
  errno = ECONNREFUSED;
  return -1;
}

extern "C" int accept(int fd, sockaddr* address, socklen_t* size) {
  static const auto next = weir::transport::Next<int (*)(int, sockaddr*, socklen_t*)>("accept");
  const std::string token = weir::transport::TokenOf(fd);
  if (token.empty()) {
    const int accepted = next(fd, address, size);
    if (accepted < 0 && weir::transport::IsClosedDoor(fd)) errno = EAGAIN;
    return accepted;
  }
  const socklen_t room = size == nullptr ? 0 : *size;
  for (int i = 0; i < weir::transport::kStrangersPerCall; ++i) {
    if (size != nullptr) *size = room;
    const int accepted = next(fd, address, size);
    // A connection whose other end gave up before this accept is no connection either.
    if (accepted < 0 && (errno == ECONNABORTED || weir::transport::IsClosedDoor(fd)))
      errno = EAGAIN;
    if (accepted < 0 || weir::transport::SaysToken(accepted, token)) return accepted;
    weir::transport::Reset(accepted);
  }
  errno = EAGAIN;
  return -1;
}

// If no name is requested, the system gives a name to which every user of the machine can write.
extern "C" int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  static const auto next = weir::transport::Next<int (*)(int, const sockaddr*, socklen_t)>("bind");
  weir::transport::UcxDoor* const door = weir::transport::current_door;
  const bool any_name = size == sizeof(sa_family_t) && address->sa_family == AF_UNIX;
  if (door != nullptr && any_name && door->BindPrivately(fd)) return 0;
  return next(fd, address, size);
}

extern "C" int getsockname(int fd, sockaddr* address, socklen_t* size) noexcept {
  static const auto next =
      weir::transport::Next<int (*)(int, sockaddr*, socklen_t*)>("getsockname");
  const std::string path = weir::transport::PrivatePathOf(fd);
  sockaddr_un name{};
  const socklen_t needed =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  if (path.empty() || *size < needed || path.size() >= sizeof(name.sun_path))
    return next(fd, address, size);
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  std::memcpy(address, &name, needed);
  *size = needed;
  return 0;
}
