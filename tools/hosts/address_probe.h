// Finds which addresses of a machine another machine reaches: tries a TCP connection and tells the
// own end of the way. An address has numbers only, with a port: "10.0.0.7:4000", "[fe80::1]:4000".
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/control/socket_address.h"
#include "tools/launch/owned_descriptor.h"
#include "tools/launch/wake_event.h"

namespace weir::hosts {

struct AddressProbe {
  std::string error;          // empty: reached. "Connection refused", "no answer within 2.0 s"
  std::string local_address;  // of this machine, on the way there; without a port
  std::string interface;      // that has local_address: "eth0"
  int64_t round_trip_us = 0;  // of the handshake
};

// Connects a new socket, which does not block, within the limit. Returns 0 or errno; ETIMEDOUT
// after the limit.
int Connect(const control::SocketAddress& address, int64_t limit_ms,
            launch::OwnedDescriptor* socket);

// Listens at an address of this machine, at a free port if `port` is 0. kUnavailable if this
// machine has no such address; kAlreadyExists if the port is taken there.
absl::StatusOr<launch::OwnedDescriptor> ListenAt(const std::string& host, uint16_t port);

// Connects to the address and closes the connection. Takes at most `limit_ms`.
AddressProbe ProbeAddress(const std::string& address, int64_t limit_ms);

// Returns the interface of this machine that has the address; empty if none has.
std::string InterfaceOf(const std::string& address);

// An interface of a machine: "eth0". Its addresses do not count the link-local ones.
struct NetworkInterface {
  std::string name;
  std::vector<std::string> addresses;
};
// Returns the interfaces of this machine that are up, also that of loopback.
std::vector<NetworkInterface> OwnInterfaces();

// Returns the addresses of this machine that other machines may reach: those of the interfaces that
// are up, without loopback and link-local ones.
std::vector<std::string> OwnAddresses();

// Returns the addresses of a host, a name or an address; empty if the name is unknown.
std::vector<std::string> AddressesOf(const std::string& host);

// Returns the address from which this machine would reach `host`, a name or an address; empty if
// the name is unknown or there is no route.
std::string AddressTowards(const std::string& host);

// A ProbeTarget listens at a free port of an address and answers probes, one after the other
// (link_probe.h), on a thread of its own.
class ProbeTarget {
 public:
  // kUnavailable if this machine has no such address.
  static absl::StatusOr<std::unique_ptr<ProbeTarget>> Open(const std::string& address);
  ~ProbeTarget();
  const std::string& host() const { return host_; }        // as Open was told
  const std::string& address() const { return address_; }  // with the port

 private:
  ProbeTarget(launch::OwnedDescriptor listener, launch::OwnedDescriptor wake, std::string host,
              std::string address);
  void Serve();

  const launch::OwnedDescriptor listener_;
  launch::WakeEvent wake_;  // once the target ends
  const std::string host_, address_;
  std::thread thread_;
};

struct ProbeTargets {
  std::vector<std::unique_ptr<ProbeTarget>> open;
  std::vector<std::string> refused;  // why, for each of the other addresses

  std::vector<std::string> addresses() const;  // with the ports, by open target
};
// Opens a target at each of the addresses that this machine has.
ProbeTargets OpenProbeTargets(const std::vector<std::string>& addresses);

}  // namespace weir::hosts
