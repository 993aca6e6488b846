// A ConnectionGate is the door of the coordinator: it listens, accepts, and hands each connection
// on, and never holds more at once than allowed. The gate exists because gRPC's own listener takes
// any number of connections and shares its port (SO_REUSEPORT). A connection that comes in has
// proved nothing yet.
//
//   comes -> (a process of another user: cut off) -> porch -> has said something -> handed on
//                                                      \-> silent for too long, or longest of all
//                                                      while others wait: cut off
//
// No number of silent connections, from any process, can therefore keep a worker out.
// Thread rule: Open and the destructor on one thread; `accepted` is called from the gate's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::control {

class ConnectionGate {
 public:
  // Takes ownership of the descriptor and closes it at the end of the connection.
  using Accepted = std::function<void(int listener, int descriptor)>;

  // Listens at a free port of `bind_address`, an IP address. kInvalidArgument if `bind_address` is
  // no IP address, kUnavailable if the address is not of this machine or the system refuses.
  // Accepts from `Admit` on. `num_workers` are awaited, which may all come at once.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Open(const std::string& bind_address,
                                                              int num_workers);
  ~ConnectionGate();

  void Admit(Accepted accepted);
  const std::string& address() const { return address_; }  // "127.0.0.1:43117", "[::1]:43117"

 private:
  // A Connection is an accepted connection, known by its descriptor and the inode behind the
  // descriptor: once closed, the descriptor is bad or means another inode.
  struct Connection {
    int descriptor;
    uint64_t inode;
  };

  // A Visitor is a connection that has not been handed on. All visitors' descriptors are the gate's
  // own.
  struct Visitor {
    int descriptor;
    int64_t came_ns;  // monotonic
  };
  using Porch = std::map<uint64_t, Visitor>;  // by a number that grows with each visitor

  // The gate's own descriptors.
  struct Descriptors {
    int listener;
    int wake;    // an eventfd: readable once the gate is to close
    int events;  // an epoll set of the other two and the visitors
  };

  ConnectionGate(const Descriptors& own, std::string address, int num_workers);
  void Run();
  bool Watch(int descriptor, uint64_t number, uint32_t events);
  void AcceptOne();
  bool MakeRoom();
  void Dismiss(Porch::iterator visitor);
  void DismissSilent(int64_t now_ns);
  void HandOnReady();
  void HandOn(const Visitor& visitor);
  void ForgetClosed();

  const Descriptors own_;
  const std::string address_;
  const size_t connections_max_;
  const size_t porch_max_;
  const int64_t silent_ms_;
  Accepted accepted_;
  // The next four belong to the gate's thread.
  std::vector<Connection> connections_;
  Porch porch_;                 // the one that came first is first
  std::deque<uint64_t> ready_;  // have said something, or are gone, in this order; some have left
  uint64_t next_number_;
  std::thread thread_;
};

}  // namespace weir::control
