#include "runtime/control/connection_gate.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/peer_user.h"
#include "runtime/control/socket_address.h"

namespace weir::control {
namespace {

constexpr int kBacklog = 512;
// The interval at which the gate looks again while it is full, or the process is out of
// descriptors; new connections wait in the backlog.
constexpr int kFullPollMs = 5;
// The limit of connections that have not said anything yet. A worker says something at once: even a
// starved worker is heard in time.
constexpr size_t kPorchMax = 256;
constexpr int64_t kSilentMs = 5'000;
constexpr int64_t kNsPerMs = 1'000'000;

absl::Status CannotListen(const std::string& bind_address, const char* call) {
  const int error = errno;
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {.code = "W0614",
                  .where = bind_address,
                  .expected = "an address to listen at",
                  .found = absl::StrCat(call, ": ", std::strerror(error)),
                  .hint = "an address of this machine, such as 127.0.0.1"});
}

enum class Speech { kNone, kSome, kGone };

// Looks at the bytes that a connection has sent so far, without reading them.
Speech SpeechOf(int descriptor) {
  char byte;
  const ssize_t size = recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (size > 0) return Speech::kSome;
  return size < 0 && (errno == EAGAIN || errno == EINTR) ? Speech::kNone : Speech::kGone;
}

void CutOff(int descriptor) {
  const linger at_once = {1, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(descriptor);
}

// Returns whether the peer belongs neither to this user nor to the administrator.
bool IsStranger(int descriptor) {
  const std::optional<uid_t> user = UserOfPeer(descriptor);
  return user.has_value() && *user != geteuid() && *user != 0;
}

std::optional<uint64_t> InodeOf(int descriptor) {
  struct stat facts;
  if (fstat(descriptor, &facts) != 0) return std::nullopt;
  return facts.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Open(
    const std::string& bind_address, int connections_max) {
  const std::optional<SocketAddress> wanted = SocketAddress::Parse(bind_address, 0);
  if (!wanted.has_value()) {
    return Rejected({.code = "W0614",
                     .where = absl::StrCat("'", bind_address, "'"),
                     .expected = "an IP address to listen at",
                     .found = "something else",
                     .hint = "127.0.0.1"});
  }
  const int listener = socket(wanted->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return CannotListen(bind_address, "socket");
  const char* failed = nullptr;
  if (bind(listener, wanted->any(), wanted->size()) != 0) failed = "bind";
  if (failed == nullptr && listen(listener, kBacklog) != 0) failed = "listen";
  const std::optional<SocketAddress> bound = SocketAddress::LocalOf(listener);
  if (failed == nullptr && !bound.has_value()) failed = "getsockname";
  const int wake = failed == nullptr ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  if (failed == nullptr && wake < 0) failed = "eventfd";
  if (failed != nullptr) {
    absl::Status status = CannotListen(bind_address, failed);
    close(listener);
    return status;
  }
  return std::unique_ptr<ConnectionGate>(
      new ConnectionGate(listener, wake, bound->text(), connections_max));
}

ConnectionGate::ConnectionGate(int listener, int wake, std::string address, int connections_max)
    : listener_(listener),
      wake_(wake),
      address_(std::move(address)),
      connections_max_(connections_max) {}

ConnectionGate::~ConnectionGate() {
  const uint64_t one = 1;
  // An empty eventfd always accepts a one.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  for (const Visitor& visitor : porch_) close(visitor.descriptor);
  close(listener_);
  close(wake_);
}

void ConnectionGate::Admit(Accepted accepted) {
  accepted_ = std::move(accepted);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionGate::Run() {
  while (true) {
    // To look at all connections takes time, so that is done when it matters.
    if (connections_.size() >= connections_max_) ForgetClosed();
    const int64_t now_ns = MonotonicClock().NowNs();
    DismissSilent(now_ns);
    const bool is_full = connections_.size() >= connections_max_;
    std::vector<pollfd> waits = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    if (!is_full) {
      for (const Visitor& visitor : porch_) waits.push_back({visitor.descriptor, POLLIN, 0});
    }
    int64_t limit_ms = -1;
    if (!porch_.empty())
      limit_ms = std::max<int64_t>((porch_.front().came_ns - now_ns) / kNsPerMs + kSilentMs, 0) + 1;
    if (is_full) limit_ms = kFullPollMs;
    const int ready = poll(waits.data(), waits.size(), static_cast<int>(limit_ms));
    if (ready < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    std::deque<Visitor> waiting;
    for (size_t i = 0; i < porch_.size(); ++i) {
      const bool has_news = i + 2 < waits.size() && waits[i + 2].revents != 0;
      if (has_news && connections_.size() < connections_max_) {
        HandOn(porch_[i]);
      } else {
        waiting.push_back(porch_[i]);
      }
    }
    porch_.swap(waiting);
    if (waits[1].revents != 0) AcceptOne();
  }
}

// Cuts off the connection that has been silent for longest, if any is silent.
bool ConnectionGate::MakeRoom() {
  for (auto visitor = porch_.begin(); visitor != porch_.end(); ++visitor) {
    if (SpeechOf(visitor->descriptor) == Speech::kSome) continue;
    CutOff(visitor->descriptor);
    porch_.erase(visitor);
    return true;
  }
  return false;
}

void ConnectionGate::DismissSilent(int64_t now_ns) {
  while (!porch_.empty() && now_ns - porch_.front().came_ns >= kSilentMs * kNsPerMs &&
         SpeechOf(porch_.front().descriptor) != Speech::kSome) {
    CutOff(porch_.front().descriptor);
    porch_.pop_front();
  }
}

// Hands on a connection that has said something, or is gone.
void ConnectionGate::HandOn(const Visitor& visitor) {
  const auto inode = InodeOf(visitor.descriptor);
  if (SpeechOf(visitor.descriptor) != Speech::kSome || !inode.has_value()) {
    close(visitor.descriptor);
    return;
  }
  connections_.push_back({visitor.descriptor, *inode});
  accepted_(listener_, visitor.descriptor);
}

void ConnectionGate::AcceptOne() {
  pollfd wait = {wake_, POLLIN, 0};
  if (porch_.size() >= kPorchMax && !MakeRoom()) {
    poll(&wait, 1, kFullPollMs);  // all of them wait for a place inside
    return;
  }
  const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) {
    const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (is_short && !MakeRoom()) poll(&wait, 1, kFullPollMs);
    return;  // any other reason concerns the one who came only
  }
  if (IsStranger(descriptor)) {
    CutOff(descriptor);
    return;
  }
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  porch_.push_back({descriptor, MonotonicClock().NowNs()});
}

void ConnectionGate::ForgetClosed() {
  const auto is_closed = [](const Connection& connection) {
    const auto inode = InodeOf(connection.descriptor);
    return !inode.has_value() || *inode != connection.inode;
  };
  connections_.erase(std::remove_if(connections_.begin(), connections_.end(), is_closed),
                     connections_.end());
}

}  // namespace weir::control
