// Presence says where a worker of a job is, as the coordinator sees it. PresenceCounts has the
// number of workers of each presence, so that whoever waits for thousands of workers does not look
// at all of them whenever another one comes. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstddef>

namespace weir::control {

enum class Presence { kAwaited, kConnected, kLeft, kLost };

class PresenceCounts {
 public:
  explicit PresenceCounts(int num_workers) : num_workers_(num_workers) {
    At(Presence::kAwaited) = num_workers;
  }

  // A worker passes from one presence to another. `has_beaten`: Beat was called for the worker.
  void Move(Presence from, Presence to, bool has_beaten) {
    --At(from);
    ++At(to);
    if (has_beaten && from == Presence::kConnected) --num_beaten_;
  }
  // A connected worker has beaten for the first time.
  void Beat() { ++num_beaten_; }

  int num_connected() const { return counts_[static_cast<size_t>(Presence::kConnected)]; }
  // Returns whether all workers are connected and have beaten.
  bool all_have_beaten() const { return num_beaten_ == num_workers_; }
  // Returns whether some worker has come and is gone again.
  bool some_are_gone() const {
    return counts_[static_cast<size_t>(Presence::kLeft)] +
               counts_[static_cast<size_t>(Presence::kLost)] >
           0;
  }

 private:
  int& At(Presence presence) { return counts_[static_cast<size_t>(presence)]; }

  const int num_workers_;
  std::array<int, 4> counts_ = {};
  int num_beaten_ = 0;  // of the connected workers
};

}  // namespace weir::control
