#include "runtime/control/connection_gate.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
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
#include "runtime/control/greeting_time.h"
#include "runtime/control/peer_user.h"
#include "runtime/control/socket_address.h"

namespace weir::control {
namespace {

constexpr int kBacklog = 4096;  // the system may have a lower limit
// The interval at which the gate looks again while it is full, or the process is out of
// descriptors; new connections wait in the backlog.
constexpr int kFullPollMs = 5;
// Connections beyond the workers': refused connections on their way out, strangers on their way in.
constexpr size_t kSpareConnections = 16;
// The limits of connections that have not said anything yet, for any job and for one of few
// workers. Both grow with the workers, because all of them come at once, and the machine may be
// late to let each say its first word.
constexpr size_t kPorchMin = 256;
constexpr int64_t kSilentMs = 5'000;
// The numbers of the gate's own descriptors among the events. Those of visitors follow.
constexpr uint64_t kWakeNumber = 0, kListenerNumber = 1, kFirstVisitor = 2;
constexpr int kEventsMax = 64;  // of one look
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
    const std::string& bind_address, int num_workers) {
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
  Descriptors own{listener, -1, -1};
  if (failed == nullptr && (own.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
    failed = "eventfd";
  if (failed == nullptr && (own.events = epoll_create1(EPOLL_CLOEXEC)) < 0) failed = "epoll_create";
  if (failed != nullptr) {
    absl::Status status = CannotListen(bind_address, failed);
    for (const int descriptor : {own.listener, own.wake, own.events})
      if (descriptor >= 0) close(descriptor);
    return status;
  }
  std::unique_ptr<ConnectionGate> gate(new ConnectionGate(own, bound->text(), num_workers));
  if (!gate->Watch(own.wake, kWakeNumber, EPOLLIN) ||
      !gate->Watch(own.listener, kListenerNumber, EPOLLIN))
    return CannotListen(bind_address, "epoll_ctl");
  return gate;
}

ConnectionGate::ConnectionGate(const Descriptors& own, std::string address, int num_workers)
    : own_(own),
      address_(std::move(address)),
      connections_max_(static_cast<size_t>(num_workers) + kSpareConnections),
      porch_max_(std::max(kPorchMin, connections_max_)),
      silent_ms_(kSilentMs + GreetingMs(num_workers)),
      next_number_(kFirstVisitor) {}

ConnectionGate::~ConnectionGate() {
  const uint64_t one = 1;
  // An empty eventfd always accepts a one.
  [[maybe_unused]] const ssize_t written = write(own_.wake, &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  for (const auto& [number, visitor] : porch_) close(visitor.descriptor);
  for (const int descriptor : {own_.listener, own_.wake, own_.events}) close(descriptor);
}

void ConnectionGate::Admit(Accepted accepted) {
  accepted_ = std::move(accepted);
  thread_ = std::thread([this] { Run(); });
}

bool ConnectionGate::Watch(int descriptor, uint64_t number, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = number;
  return epoll_ctl(own_.events, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void ConnectionGate::Run() {
  while (true) {
    // To look at all connections takes time, so that is done when it matters.
    if (connections_.size() >= connections_max_) ForgetClosed();
    HandOnReady();
    const int64_t now_ns = MonotonicClock().NowNs();
    DismissSilent(now_ns);
    int64_t limit_ms = -1;
    if (!porch_.empty()) {
      const int64_t came_ns = porch_.begin()->second.came_ns;
      limit_ms = std::max<int64_t>((came_ns - now_ns) / kNsPerMs + silent_ms_, 0) + 1;
    }
    if (!ready_.empty()) limit_ms = kFullPollMs;  // they wait for a place inside
    epoll_event events[kEventsMax];
    const int ready = epoll_wait(own_.events, events, kEventsMax, static_cast<int>(limit_ms));
    if (ready < 0 && errno != EINTR) return;
    for (int i = 0; i < ready; ++i) {
      if (events[i].data.u64 == kWakeNumber) return;
      if (events[i].data.u64 == kListenerNumber) {
        AcceptOne();
      } else {
        ready_.push_back(events[i].data.u64);
      }
    }
  }
}

// Cuts off the connection that has been silent for longest, if any is silent.
bool ConnectionGate::MakeRoom() {
  for (auto visitor = porch_.begin(); visitor != porch_.end(); ++visitor) {
    if (SpeechOf(visitor->second.descriptor) == Speech::kSome) continue;
    Dismiss(visitor);
    return true;
  }
  return false;
}

void ConnectionGate::Dismiss(Porch::iterator visitor) {
  CutOff(visitor->second.descriptor);
  porch_.erase(visitor);
}

void ConnectionGate::DismissSilent(int64_t now_ns) {
  while (!porch_.empty()) {
    const Visitor& first = porch_.begin()->second;
    if (now_ns - first.came_ns < silent_ms_ * kNsPerMs ||
        SpeechOf(first.descriptor) == Speech::kSome)
      return;
    Dismiss(porch_.begin());
  }
}

// Hands on who has said something, as long as there is a place inside.
void ConnectionGate::HandOnReady() {
  while (!ready_.empty() && connections_.size() < connections_max_) {
    const auto visitor = porch_.find(ready_.front());
    ready_.pop_front();
    if (visitor == porch_.end()) continue;  // it has been dismissed since
    epoll_ctl(own_.events, EPOLL_CTL_DEL, visitor->second.descriptor, nullptr);
    HandOn(visitor->second);
    porch_.erase(visitor);
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
  accepted_(own_.listener, visitor.descriptor);
}

void ConnectionGate::AcceptOne() {
  pollfd wait = {own_.wake, POLLIN, 0};
  if (porch_.size() >= porch_max_ && !MakeRoom()) {
    poll(&wait, 1, kFullPollMs);  // all of them wait for a place inside
    return;
  }
  const int descriptor = accept4(own_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
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
  const uint64_t number = next_number_++;
  // A visitor is told of once: whoever waits for a place inside would be told of again and again.
  if (!Watch(descriptor, number, EPOLLIN | EPOLLONESHOT)) {
    CutOff(descriptor);  // the kernel has no memory for it
    return;
  }
  porch_.emplace(number, Visitor{descriptor, MonotonicClock().NowNs()});
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
