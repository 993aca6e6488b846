#include "tools/hosts/link_probe.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/control/socket_address.h"
#include "tools/hosts/address_probe.h"

namespace weir::hosts {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int kEchoes = 32;
constexpr int64_t kEchoMsMax = 100;
constexpr int64_t kBulkMs = 300;
constexpr int64_t kServeMsMax = 5'000;
constexpr size_t kPieceBytes = 256 << 10;
constexpr char kEcho = 'e', kBulk = 'b', kDone = 'd';

// Waits until the socket has the event. Returns false once the time is over.
bool Await(int socket, short event, int64_t end_ns) {
  const int64_t left_ns = end_ns - MonotonicClock().NowNs();
  pollfd polled = {socket, event, 0};
  return left_ns > 0 && ::poll(&polled, 1, launch::PollMs(left_ns)) > 0;
}

absl::Status Broken(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", ::strerror(errno)));
}

absl::Status SendByte(int socket, char byte, int64_t end_ns) {
  while (::send(socket, &byte, 1, MSG_NOSIGNAL) != 1) {
    if (errno != EAGAIN && errno != EINTR) return Broken("the other side does not take a byte");
    if (!Await(socket, POLLOUT, end_ns)) return absl::DeadlineExceededError("no byte is taken");
  }
  return absl::OkStatus();
}

absl::Status AwaitByte(int socket, char wanted, int64_t end_ns) {
  char byte = 0;
  while (true) {
    const ssize_t count = ::recv(socket, &byte, 1, 0);
    if (count == 1 && byte == wanted) return absl::OkStatus();
    if (count >= 0) return absl::UnavailableError("the other side does not answer as a target");
    if (errno != EAGAIN && errno != EINTR) return Broken("no answer");
    if (!Await(socket, POLLIN, end_ns)) return absl::DeadlineExceededError("no answer in time");
  }
}

absl::Status MeasureEchoes(int socket, int64_t end_ns, LinkSpeed* speed) {
  const MonotonicClock clock;
  const int64_t echoes_end_ns = clock.NowNs() + kEchoMsMax * kNsPerMs;
  std::vector<int64_t> rounds;
  for (int i = 0; i < kEchoes && (i == 0 || clock.NowNs() < echoes_end_ns); ++i) {
    const int64_t begin_ns = clock.NowNs();
    WEIR_RETURN_IF_ERROR(SendByte(socket, kEcho, end_ns));
    WEIR_RETURN_IF_ERROR(AwaitByte(socket, kEcho, end_ns));
    rounds.push_back(clock.NowNs() - begin_ns);
  }
  std::nth_element(rounds.begin(), rounds.begin() + rounds.size() / 2, rounds.end());
  speed->round_trip_ns = rounds[rounds.size() / 2];
  return absl::OkStatus();
}

absl::Status MeasureBytes(int socket, int64_t end_ns, LinkSpeed* speed) {
  const MonotonicClock clock;
  WEIR_RETURN_IF_ERROR(SendByte(socket, kBulk, end_ns));
  const std::vector<char> piece(kPieceBytes, 0);
  const int64_t begin_ns = clock.NowNs(), bulk_end_ns = begin_ns + kBulkMs * kNsPerMs;
  int64_t sent = 0;
  while (clock.NowNs() < bulk_end_ns) {
    const ssize_t count = ::send(socket, piece.data(), piece.size(), MSG_NOSIGNAL);
    if (count > 0) sent += count;
    if (count < 0 && errno != EAGAIN && errno != EINTR) return Broken("the stream ended");
    if (count < 0 && !Await(socket, POLLOUT, std::min(end_ns, bulk_end_ns))) break;
  }
  ::shutdown(socket, SHUT_WR);
  WEIR_RETURN_IF_ERROR(AwaitByte(socket, kDone, end_ns));
  speed->bytes_per_second =
      static_cast<double>(sent) * 1e9 / static_cast<double>(clock.NowNs() - begin_ns);
  return absl::OkStatus();
}

}  // namespace

LinkSpeed MeasureLink(const std::string& text, int64_t limit_ms) {
  LinkSpeed speed;
  const std::optional<control::SocketAddress> address = control::SocketAddress::ParseWithPort(text);
  if (!address.has_value()) {
    speed.error = "it is no address";
    return speed;
  }
  const int64_t end_ns = MonotonicClock().NowNs() + limit_ms * kNsPerMs;
  launch::OwnedDescriptor socket;
  if (const int error = Connect(*address, limit_ms, &socket); error != 0) {
    speed.error = ::strerror(error);
    return speed;
  }
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  absl::Status status = MeasureEchoes(socket.get(), end_ns, &speed);
  if (status.ok()) status = MeasureBytes(socket.get(), end_ns, &speed);
  speed.error = std::string(status.message());
  return speed;
}

void ServeLinkProbe(int connection, const launch::WakeEvent& wake) {
  const MonotonicClock clock;
  const int64_t end_ns = clock.NowNs() + kServeMsMax * kNsPerMs;
  std::vector<char> bytes(kPieceBytes);
  bool in_bulk = false;
  while (clock.NowNs() < end_ns) {
    pollfd polled[] = {{connection, POLLIN, 0}, {wake.descriptor(), POLLIN, 0}};
    if (::poll(polled, 2, launch::PollMs(end_ns - clock.NowNs())) < 0 && errno != EINTR) return;
    if (polled[1].revents != 0) return;
    const ssize_t count = ::recv(connection, bytes.data(), in_bulk ? bytes.size() : 1, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count == 0 && in_bulk) {
      SendByte(connection, kDone, end_ns).IgnoreError();
      return;
    }
    if (count <= 0) return;
    if (in_bulk) continue;
    if (bytes[0] == kBulk) {
      in_bulk = true;
    } else if (bytes[0] != kEcho || !SendByte(connection, kEcho, end_ns).ok()) {
      return;
    }
  }
}

}  // namespace weir::hosts
