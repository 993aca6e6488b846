// A SocketAddress is an IPv4 or IPv6 address with a port, as text and as the system's calls take
// it: "10.0.0.7:4000", "[fe80::1%eth0]:4000". Thread rule: a value.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace weir::control {

class SocketAddress {
 public:
  // Parses an address of numbers, such as "10.0.0.7", "fe80::1%eth0" and "[::1]". nullopt if the
  // text is none; no name is looked up.
  static std::optional<SocketAddress> Parse(const std::string& host, uint16_t port);
  // Parses an address with its port behind a colon; an IPv6 address stands in brackets.
  static std::optional<SocketAddress> ParseWithPort(const std::string& text);
  // nullopt for an address of another family.
  static std::optional<SocketAddress> Of(const sockaddr* address);
  // The two ends of a socket; nullopt if the descriptor is no such socket.
  static std::optional<SocketAddress> LocalOf(int descriptor);
  static std::optional<SocketAddress> PeerOf(int descriptor);

  std::string host() const;  // without port and brackets; an IPv4 address in IPv6 as IPv4
  uint16_t port() const;
  std::string text() const;  // with the port, as ParseWithPort takes it
  bool is_v4() const { return address_.any.sa_family == AF_INET; }
  bool is_link_local() const;

  int family() const { return address_.any.sa_family; }
  const sockaddr* any() const { return &address_.any; }
  socklen_t size() const { return is_v4() ? sizeof(address_.v4) : sizeof(address_.v6); }

 private:
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } address_ = {};
};

}  // namespace weir::control
