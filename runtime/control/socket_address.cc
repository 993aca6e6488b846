#include "runtime/control/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weir::control {
namespace {

// Removes the brackets around an IPv6 address.
std::string Bare(const std::string& host) {
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has_brackets ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

std::optional<SocketAddress> SocketAddress::Parse(const std::string& host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(Bare(host).c_str(), nullptr, &hints, &found) != 0) return std::nullopt;
  std::optional<SocketAddress> address = Of(found->ai_addr);
  ::freeaddrinfo(found);
  if (address.has_value())
    (address->is_v4() ? address->address_.v4.sin_port : address->address_.v6.sin6_port) =
        htons(port);
  return address;
}

std::optional<SocketAddress> SocketAddress::ParseWithPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 ||
      port > UINT16_MAX)
    return std::nullopt;
  return Parse(text.substr(0, colon), static_cast<uint16_t>(port));
}

std::optional<SocketAddress> SocketAddress::Of(const sockaddr* address) {
  SocketAddress found;
  if (address->sa_family == AF_INET) {
    ::memcpy(&found.address_, address, sizeof(found.address_.v4));
  } else if (address->sa_family == AF_INET6) {
    ::memcpy(&found.address_, address, sizeof(found.address_.v6));
  } else {
    return std::nullopt;
  }
  return found;
}

std::optional<SocketAddress> SocketAddress::LocalOf(int descriptor) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  return ::getsockname(descriptor, any, &size) == 0 ? Of(any) : std::nullopt;
}

std::optional<SocketAddress> SocketAddress::PeerOf(int descriptor) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  return ::getpeername(descriptor, any, &size) == 0 ? Of(any) : std::nullopt;
}

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = "";
  if (!is_v4() && IN6_IS_ADDR_V4MAPPED(&address_.v6.sin6_addr)) {
    ::inet_ntop(AF_INET, &address_.v6.sin6_addr.s6_addr[12], text, sizeof(text));
  } else {
    ::getnameinfo(any(), size(), text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  }
  return text;
}

uint16_t SocketAddress::port() const {
  return ntohs(is_v4() ? address_.v4.sin_port : address_.v6.sin6_port);
}

std::string SocketAddress::text() const {
  const std::string bare = host();
  const bool has_colon = bare.find(':') != std::string::npos;
  return has_colon ? absl::StrCat("[", bare, "]:", port()) : absl::StrCat(bare, ":", port());
}

bool SocketAddress::is_link_local() const {
  return !is_v4() && IN6_IS_ADDR_LINKLOCAL(&address_.v6.sin6_addr);
}

}  // namespace weir::control
