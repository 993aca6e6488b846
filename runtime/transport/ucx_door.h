// The door of a rank's TCP port. UCX takes connections from anyone and trusts what comes over
// them; so each connection must begin with a token that only ranks of the job know, before UCX
// sees a byte of it, and once all peers are in, the port is closed.
//
//   UCX's call       on a thread in the scope of a door
//   listen           the socket is guarded, and accepts only connections that have said something
//   connect          says the token right after
//   accept           (on any thread, of a guarded socket) hears it; strangers are reset
//
// For this the library defines these three functions, which UCX finds before the C library's;
// other sockets and threads go straight there. Thread rule: a door by one thread; calls by any.
#pragma once

#include <string>
#include <vector>

namespace weir {

class UcxDoor {
 public:
  // `token`: of at least one byte and at most 64.
  explicit UcxDoor(std::string token) : token_(std::move(token)) {}
  ~UcxDoor() { Close(); }
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

 private:
  const std::string token_;
  std::vector<int> listeners_;
};

}  // namespace weir
