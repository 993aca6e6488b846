#include "tools/hosts/address_probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/clock.h"
#include "tools/launch/owned_descriptor.h"

namespace weir::hosts {
namespace {

constexpr int kBacklog = 1024;  // a probe from every host at once, never accepted

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

socklen_t SizeOf(const SocketAddress& address) {
  return address.any.sa_family == AF_INET6 ? sizeof(address.v6) : sizeof(address.v4);
}

// Parses an address of numbers, with a zone ("fe80::1%eth0") perhaps. Returns false if it is none.
bool Parse(const std::string& text, uint16_t port, SocketAddress* address) {
  *address = {};
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(text.c_str(), nullptr, &hints, &found) != 0) return false;
  const bool fits = found->ai_addrlen <= sizeof(*address);
  if (fits) ::memcpy(address, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  (address->any.sa_family == AF_INET6 ? address->v6.sin6_port : address->v4.sin_port) = htons(port);
  return fits;
}

// Splits "10.0.0.7:4000" and "[fe80::1]:4000".
bool ParseWithPort(const std::string& text, SocketAddress* address) {
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 ||
      port > 65535)
    return false;
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return Parse(host, static_cast<uint16_t>(port), address);
}

std::string TextOf(const SocketAddress& address) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(&address.any, SizeOf(address), text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string LocalAddressOf(int descriptor) {
  SocketAddress address = {};
  socklen_t size = sizeof(address);
  if (::getsockname(descriptor, &address.any, &size) != 0) return "";
  return TextOf(address);
}

// Returns 0 or errno; ETIMEDOUT after the limit.
int Connect(int descriptor, const SocketAddress& address, int64_t limit_ms) {
  if (::connect(descriptor, &address.any, SizeOf(address)) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd connected = {descriptor, POLLOUT, 0};
  if (::poll(&connected, 1, static_cast<int>(limit_ms)) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

AddressProbe ProbeAddress(const std::string& text, int64_t limit_ms) {
  AddressProbe probe;
  SocketAddress address;
  if (!ParseWithPort(text, &address)) {
    probe.error = "it is no address";
    return probe;
  }
  const launch::OwnedDescriptor descriptor(
      ::socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const MonotonicClock clock;
  const int64_t begin_ns = clock.NowNs();
  const int error =
      descriptor.open() ? Connect(descriptor.get(), address, limit_ms) : static_cast<int>(errno);
  probe.round_trip_us = (clock.NowNs() - begin_ns) / 1000;
  if (error == ETIMEDOUT) {
    probe.error =
        absl::StrFormat("no answer within %.1f s", static_cast<double>(probe.round_trip_us) * 1e-6);
  } else if (error != 0) {
    probe.error = ::strerror(error);
  } else {
    probe.local_address = LocalAddressOf(descriptor.get());
    probe.interface = InterfaceOf(probe.local_address);
  }
  return probe;
}

std::string InterfaceOf(const std::string& address) {
  const std::string wanted = address.substr(0, address.find('%'));
  ifaddrs* list = nullptr;
  if (wanted.empty() || ::getifaddrs(&list) != 0) return "";
  std::string name;
  for (const ifaddrs* entry = list; entry != nullptr && name.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    SocketAddress own = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      ::memcpy(&own, entry->ifa_addr, sizeof(own.v4));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      ::memcpy(&own, entry->ifa_addr, sizeof(own.v6));
    } else {
      continue;
    }
    const std::string text = TextOf(own);
    // The whole of 127.0.0.0/8 belongs to the loopback interface.
    const bool is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (text.substr(0, text.find('%')) == wanted ||
        (is_loopback && own.any.sa_family == AF_INET && wanted.rfind("127.", 0) == 0))
      name = entry->ifa_name;
  }
  ::freeifaddrs(list);
  return name;
}

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 ||
        (entry->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    SocketAddress own = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      ::memcpy(&own, entry->ifa_addr, sizeof(own.v4));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      ::memcpy(&own, entry->ifa_addr, sizeof(own.v6));
      if (IN6_IS_ADDR_LINKLOCAL(&own.v6.sin6_addr)) continue;
    } else {
      continue;
    }
    addresses.push_back(TextOf(own));
  }
  ::freeifaddrs(list);
  return addresses;
}

std::string AddressTowards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  constexpr char kAnyPort[] = "9";  // nothing is sent
  if (::getaddrinfo(host.c_str(), kAnyPort, &hints, &found) != 0) return "";
  std::string address;
  for (const addrinfo* entry = found; entry != nullptr && address.empty(); entry = entry->ai_next) {
    const launch::OwnedDescriptor descriptor(
        ::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (descriptor.open() && ::connect(descriptor.get(), entry->ai_addr, entry->ai_addrlen) == 0)
      address = LocalAddressOf(descriptor.get());
  }
  ::freeaddrinfo(found);
  return address;
}

absl::StatusOr<std::unique_ptr<ProbeTarget>> ProbeTarget::Open(const std::string& text) {
  SocketAddress address;
  if (!Parse(text, 0, &address))
    return absl::UnavailableError(absl::StrCat("'", text, "' is no address"));
  launch::OwnedDescriptor listener(
      ::socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t size = sizeof(address);
  if (!listener.open() || ::bind(listener.get(), &address.any, SizeOf(address)) != 0 ||
      ::listen(listener.get(), kBacklog) != 0 ||
      ::getsockname(listener.get(), &address.any, &size) != 0)
    return absl::UnavailableError(absl::StrCat(text, ": ", ::strerror(errno)));
  const bool is_v6 = address.any.sa_family == AF_INET6;
  const int port = ntohs(is_v6 ? address.v6.sin6_port : address.v4.sin_port);
  std::string with_port = is_v6 ? absl::StrCat("[", TextOf(address), "]:", port)
                                : absl::StrCat(TextOf(address), ":", port);
  return std::unique_ptr<ProbeTarget>(new ProbeTarget(std::move(listener), std::move(with_port)));
}

}  // namespace weir::hosts
