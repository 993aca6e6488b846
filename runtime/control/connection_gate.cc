#include "runtime/control/connection_gate.h"

#include <arpa/inet.h>
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
#include "runtime/base/status.h"

namespace weir {
namespace {

constexpr int kBacklog = 512;
// While the house is full, or the process out of descriptors, the gate looks again this often; those who come wait
// in the backlog.
constexpr int kFullPollMs = 5;

struct Endpoint {
  sockaddr_storage address = {};
  socklen_t size = 0;
};

std::optional<Endpoint> Parse(const std::string& text) {
  Endpoint endpoint;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&endpoint.address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&endpoint.address);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    endpoint.size = sizeof(*v4);
  } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    endpoint.size = sizeof(*v6);
  } else {
    return std::nullopt;
  }
  return endpoint;
}

int PortOf(const Endpoint& endpoint) {
  if (endpoint.address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&endpoint.address)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&endpoint.address)->sin6_port);
}

absl::Status CannotListen(const std::string& bind_address, const char* call) {
  const int error = errno;
  return absl::UnavailableError(Format({.code = "W0614", .where = bind_address, .expected = "an address to listen at",
                                        .found = absl::StrCat(call, ": ", std::strerror(error)),
                                        .hint = "an address of this machine, such as 127.0.0.1"}));
}

std::optional<uint64_t> InodeOf(int descriptor) {
  struct stat facts;
  if (fstat(descriptor, &facts) != 0) return std::nullopt;
  return facts.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Open(const std::string& bind_address, int connections_max) {
  auto endpoint = Parse(bind_address);
  if (!endpoint.has_value()) {
    return Rejected({.code = "W0614", .where = absl::StrCat("'", bind_address, "'"), .expected = "an IP address to listen at",
                     .found = "something else", .hint = "127.0.0.1"});
  }
  const int listener = socket(endpoint->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return CannotListen(bind_address, "socket");
  auto* address = reinterpret_cast<sockaddr*>(&endpoint->address);
  const char* failed = nullptr;
  if (bind(listener, address, endpoint->size) != 0) failed = "bind";
  if (failed == nullptr && listen(listener, kBacklog) != 0) failed = "listen";
  if (failed == nullptr && getsockname(listener, address, &endpoint->size) != 0) failed = "getsockname";
  const int wake = failed == nullptr ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  if (failed == nullptr && wake < 0) failed = "eventfd";
  if (failed != nullptr) {
    absl::Status status = CannotListen(bind_address, failed);
    close(listener);
    return status;
  }
  const bool is_v6 = endpoint->address.ss_family == AF_INET6;
  std::string shown = absl::StrCat(is_v6 ? "[" : "", bind_address, is_v6 ? "]" : "", ":", PortOf(*endpoint));
  return std::unique_ptr<ConnectionGate>(new ConnectionGate(listener, wake, std::move(shown), connections_max));
}

ConnectionGate::ConnectionGate(int listener, int wake, std::string address, int connections_max)
    : listener_(listener), wake_(wake), address_(std::move(address)), connections_max_(connections_max) {}

ConnectionGate::~ConnectionGate() {
  const uint64_t one = 1;
  // An eventfd that holds nothing takes a one.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  close(listener_);
  close(wake_);
}

void ConnectionGate::Admit(Accepted accepted) {
  accepted_ = std::move(accepted);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionGate::Run() {
  while (true) {
    ForgetClosed();
    const bool is_full = connections_.size() >= connections_max_;
    pollfd waits[2] = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    const int ready = poll(waits, is_full ? 1 : 2, is_full ? kFullPollMs : -1);
    if (ready < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    if (!is_full && waits[1].revents != 0) AcceptOne();
  }
}

void ConnectionGate::AcceptOne() {
  const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) {
    const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    pollfd wait = {wake_, POLLIN, 0};
    if (is_short) poll(&wait, 1, kFullPollMs);
    return;  // any other reason concerns the one who came only
  }
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto inode = InodeOf(descriptor);
  if (!inode.has_value()) {
    close(descriptor);
    return;
  }
  connections_.push_back({descriptor, *inode});
  accepted_(listener_, descriptor);
}

void ConnectionGate::ForgetClosed() {
  const auto is_closed = [](const Connection& connection) {
    const auto inode = InodeOf(connection.descriptor);
    return !inode.has_value() || *inode != connection.inode;
  };
  connections_.erase(std::remove_if(connections_.begin(), connections_.end(), is_closed), connections_.end());
}

}  // namespace weir
