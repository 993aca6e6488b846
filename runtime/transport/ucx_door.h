// The door of a rank's TCP port. UCX takes connections from anyone and trusts what comes over
// them; so each connection must begin with a token that only ranks of the job know, before UCX
// sees a byte of it, and once all peers are in, the port is closed.
//
//   UCX's call       on a thread in the scope of a door
//   listen           the socket is guarded, and accepts only connections that have said something
//   connect          says the token right after
//   accept           (on any thread, of a guarded socket) hears it; strangers are reset
//   bind             a local socket that is to have any name, so that everybody can write to it,
//   gets one that only those
//                    who may look into this process can use: /proc/PID/fd/N
//   getsockname      of such a socket tells that name
//
// For this the library defines these functions, which UCX finds before the C library's;
// other sockets and threads go straight there. Thread rule: a door by one thread; calls by any.
#pragma once

#include <string>
#include <vector>

namespace weir {

class UcxDoor {
 public:
  // `token`: of at least one byte and at most 64.
  explicit UcxDoor(std::string token) : token_(std::move(token)) {}
  ~UcxDoor();
  UcxDoor(const UcxDoor&) = delete;
  UcxDoor& operator=(const UcxDoor&) = delete;

  // What UCX does on this thread, it does for `door`.
  class Scope {
   public:
    explicit Scope(UcxDoor* door);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    UcxDoor* const outer_;
  };

  // Nobody else is expected: stops listening. Idempotent.
  void Close();

  const std::string& token() const { return token_; }
  void AddListener(int fd);
  // Binds a local socket to a name in /proc/PID/fd. False, with errno, if there is no folder in
  // which to make it.
  bool BindPrivately(int fd);

 private:
  const std::string token_;
  std::vector<int> listeners_;
  std::vector<int> private_sockets_;
};

}  // namespace weir
