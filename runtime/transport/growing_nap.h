// A GrowingNap gives the time to sleep between two looks at something that gives no sign when it
// changes: a moment at first, then ever longer. The delay by the nap is no longer than the time
// that the change has taken already, and a long wait costs next to nothing. Thread rule: one thread
// at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weir::transport {

class GrowingNap {
 public:
  static constexpr int64_t kFirstNs = 50'000;
  static constexpr int64_t kLongestNs = 100'000'000;

  // Returns the length of the next nap.
  int64_t NextNs() {
    const int64_t now_ns = next_ns_;
    next_ns_ = std::min(2 * next_ns_, kLongestNs);
    return now_ns;
  }
  // Called after a change: the next wait begins with a short nap again.
  void Reset() { next_ns_ = kFirstNs; }
  bool IsFirst() const { return next_ns_ == kFirstNs; }

 private:
  int64_t next_ns_ = kFirstNs;
};

}  // namespace weir::transport
