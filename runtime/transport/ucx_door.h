// A UcxDoor is the door of a rank's TCP port. UCX takes connections from any process and trusts the
// bytes that come over them. Each connection must therefore begin with a token that only ranks of
// the job know, before UCX sees a byte of it, and the port is closed once all peers are in.
//
//   UCX's call       on a thread in the scope of a door
//   listen           the socket is guarded, and accepts only connections that have said something
//   connect          says the token right after
//   accept           (on any thread, of a guarded socket) hears it; strangers are reset
//   bind             a local socket that may have any name, so that everybody could write to it,
//                    gets a name that only processes that may look into this process can use:
//                    /proc/PID/fd/N
//   getsockname      of such a socket tells that name
//
// The library defines these functions, which UCX finds before the C library's; calls on other
// sockets and threads go straight to the C library. Thread rule: a door by one thread; calls by
// any.
#pragma once

#include <string>
#include <vector>

namespace weir::transport {

class UcxDoor {
 public:
  // `token` has at least one byte and at most 64.
  explicit UcxDoor(std::string token) : token_(std::move(token)) {}
  ~UcxDoor();
  UcxDoor(const UcxDoor&) = delete;
  UcxDoor& operator=(const UcxDoor&) = delete;

  // While a Scope exists, UCX's calls on this thread are for `door`.
  class Scope {
   public:
    explicit Scope(UcxDoor* door);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    UcxDoor* const outer_;
  };

  // Stops listening, because no other connection is expected. Idempotent.
  void Close();
  // Closes the door and forgets its sockets. Must come before UCX closes the sockets, because their
  // numbers then belong to others. Idempotent.
  void Release();

  const std::string& token() const { return token_; }
  void AddListener(int fd);
  // Binds a local socket to a name in /proc/PID/fd. Returns false, with errno, if there is no
  // folder in which to make the socket.
  bool BindPrivately(int fd);

 private:
  const std::string token_;
  std::vector<int> listeners_;
  std::vector<int> private_sockets_;
};

}  // namespace weir::transport
