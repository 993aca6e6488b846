#include "tools/hosts/address_probe.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/control/socket_address.h"
#include "tools/hosts/link_probe.h"
#include "tools/launch/owned_descriptor.h"

namespace weir::hosts {
namespace {

using control::SocketAddress;

constexpr int64_t kAgainMs = 100;
constexpr int kBacklog = 1024;  // a connection from every host at once

std::string LocalHostOf(int descriptor) {
  const std::optional<SocketAddress> address = SocketAddress::LocalOf(descriptor);
  return address.has_value() ? address->host() : "";
}

}  // namespace

int Connect(const SocketAddress& address, int64_t limit_ms, launch::OwnedDescriptor* socket) {
  *socket = launch::OwnedDescriptor(
      ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket->open()) return errno;
  if (::connect(socket->get(), address.any(), address.size()) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd connected = {socket->get(), POLLOUT, 0};
  if (::poll(&connected, 1, static_cast<int>(limit_ms)) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket->get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

AddressProbe ProbeAddress(const std::string& text, int64_t limit_ms) {
  AddressProbe probe;
  const std::optional<SocketAddress> address = SocketAddress::ParseWithPort(text);
  if (!address.has_value()) {
    probe.error = "it is no address";
    return probe;
  }
  const MonotonicClock clock;
  const int64_t end_ns = clock.NowNs() + limit_ms * 1'000'000;
  launch::OwnedDescriptor descriptor;
  int error = 0;
  do {
    const int64_t begin_ns = clock.NowNs();
    error = Connect(*address, std::max<int64_t>((end_ns - begin_ns) / 1'000'000, 1), &descriptor);
    probe.round_trip_us = (clock.NowNs() - begin_ns) / 1000;
    // The system remembers for a while that a neighbour did not answer, also after the network has
    // come back.
    if (error == EHOSTUNREACH) std::this_thread::sleep_for(std::chrono::milliseconds(kAgainMs));
  } while (error == EHOSTUNREACH && clock.NowNs() < end_ns);
  if (error == ETIMEDOUT) {
    probe.error =
        absl::StrFormat("no answer within %.1f s", static_cast<double>(probe.round_trip_us) * 1e-6);
  } else if (error != 0) {
    probe.error = ::strerror(error);
  } else {
    probe.local_address = LocalHostOf(descriptor.get());
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
    const std::optional<SocketAddress> own = SocketAddress::Of(entry->ifa_addr);
    if (!own.has_value()) continue;
    const std::string text = own->host();
    // The whole of 127.0.0.0/8 belongs to the loopback interface.
    const bool is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (text.substr(0, text.find('%')) == wanted ||
        (is_loopback && own->is_v4() && wanted.rfind("127.", 0) == 0))
      name = entry->ifa_name;
  }
  ::freeifaddrs(list);
  return name;
}

std::vector<NetworkInterface> OwnInterfaces() {
  std::vector<NetworkInterface> interfaces;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    auto known = std::find_if(
        interfaces.begin(), interfaces.end(),
        [entry](const NetworkInterface& interface) { return interface.name == entry->ifa_name; });
    if (known == interfaces.end())
      known = interfaces.insert(interfaces.end(), {entry->ifa_name, {}});
    if (entry->ifa_addr == nullptr) continue;
    const std::optional<SocketAddress> own = SocketAddress::Of(entry->ifa_addr);
    if (own.has_value() && !own->is_link_local()) known->addresses.push_back(own->host());
  }
  ::freeifaddrs(list);
  return interfaces;
}

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 ||
        (entry->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    const std::optional<SocketAddress> own = SocketAddress::Of(entry->ifa_addr);
    if (own.has_value() && !own->is_link_local()) addresses.push_back(own->host());
  }
  ::freeifaddrs(list);
  return addresses;
}

std::vector<std::string> AddressesOf(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<std::string> addresses;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const std::optional<SocketAddress> address = SocketAddress::Of(entry->ai_addr);
    if (address.has_value()) addresses.push_back(address->host());
  }
  ::freeaddrinfo(found);
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
      address = LocalHostOf(descriptor.get());
  }
  ::freeaddrinfo(found);
  return address;
}

absl::StatusOr<std::unique_ptr<ProbeTarget>> ProbeTarget::Open(const std::string& text) {
  WEIR_ASSIGN_OR_RETURN(launch::OwnedDescriptor listener, ListenAt(text, /*port=*/0));
  WEIR_ASSIGN_OR_RETURN(launch::OwnedDescriptor wake, launch::WakeEvent::Open());
  std::string address = SocketAddress::LocalOf(listener.get())->text();
  return std::unique_ptr<ProbeTarget>(
      new ProbeTarget(std::move(listener), std::move(wake), text, std::move(address)));
}

ProbeTarget::ProbeTarget(launch::OwnedDescriptor listener, launch::OwnedDescriptor wake,
                         std::string host, std::string address)
    : listener_(std::move(listener)),
      wake_(std::move(wake)),
      host_(std::move(host)),
      address_(std::move(address)),
      thread_([this] { Serve(); }) {}

ProbeTarget::~ProbeTarget() {
  wake_.Wake();
  thread_.join();
}

void ProbeTarget::Serve() {
  // Signals are for threads that look for them.
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (true) {
    pollfd polled[] = {{listener_.get(), POLLIN, 0}, {wake_.descriptor(), POLLIN, 0}};
    if (::poll(polled, 2, -1) < 0 && errno != EINTR) return;
    if (polled[1].revents != 0) return;
    const launch::OwnedDescriptor connection(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.open()) ServeLinkProbe(connection.get(), wake_);
  }
}

std::vector<std::string> ProbeTargets::addresses() const {
  std::vector<std::string> addresses;
  for (const std::unique_ptr<ProbeTarget>& target : open) addresses.push_back(target->address());
  return addresses;
}

ProbeTargets OpenProbeTargets(const std::vector<std::string>& addresses) {
  ProbeTargets targets;
  for (const std::string& address : addresses) {
    absl::StatusOr<std::unique_ptr<ProbeTarget>> target = ProbeTarget::Open(address);
    if (target.ok()) {
      targets.open.push_back(*std::move(target));
    } else {
      targets.refused.push_back(std::string(target.status().message()));
    }
  }
  return targets;
}

absl::StatusOr<launch::OwnedDescriptor> ListenAt(const std::string& host, uint16_t port) {
  const std::optional<SocketAddress> address = SocketAddress::Parse(host, port);
  if (!address.has_value())
    return absl::UnavailableError(absl::StrCat("'", host, "' is no address"));
  launch::OwnedDescriptor listener(
      ::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  // A port that an earlier job has left is free at once.
  if (listener.open() && port != 0)
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!listener.open() || ::bind(listener.get(), address->any(), address->size()) != 0 ||
      ::listen(listener.get(), kBacklog) != 0 ||
      !SocketAddress::LocalOf(listener.get()).has_value()) {
    const int error = errno;
    const std::string text =
        absl::StrCat(port == 0 ? host : address->text(), ": ", ::strerror(error));
    return error == EADDRINUSE ? absl::AlreadyExistsError(text) : absl::UnavailableError(text);
  }
  return listener;
}

}  // namespace weir::hosts
