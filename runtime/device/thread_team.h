// A ThreadTeam is the cores of one CPU device. One thread leads; the other threads sleep until
// ParallelFor wakes them, and sleep again afterwards (no busy wait).
//
// Determinism: the caller numbers and cuts pieces by shape alone, so the result does not depend on
// the number of threads. The assignment of pieces to workers is random: a worker's number may
// choose scratch memory, never a result.
// Thread rule: ParallelFor is called by one thread at a time (the device's).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace weir::device {

class ThreadTeam {
 public:
  // Requires num_threads >= 1, the leader included. Makes num_threads - 1 threads.
  explicit ThreadTeam(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const;

  // Runs body(context, piece, worker) for each piece in [0, num_pieces), in any order and on any
  // thread of the team; returns when all pieces are done. `worker` is in [0, num_threads()); no two
  // pieces run at once under the same worker. Allocates nothing.
  void ParallelFor(int64_t num_pieces, void (*body)(void* context, int64_t piece, int worker),
                   void* context);

  // Does the same for any callable `f(int64_t piece)` or `f(int64_t piece, int worker)`.
  template <typename F>
  void For(int64_t num_pieces, F&& f) {
    using Callable = std::remove_reference_t<F>;
    ParallelFor(
        num_pieces,
        [](void* context, int64_t piece, int worker) {
          Callable& callable = *static_cast<Callable*>(context);
          if constexpr (std::is_invocable_v<Callable&, int64_t, int>) {
            callable(piece, worker);
          } else {
            callable(piece);
          }
        },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weir::device
