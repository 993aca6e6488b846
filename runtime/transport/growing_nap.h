// How long to sleep between two looks at something that gives no sign when it changes: a moment at
// first, then ever longer. What is late by that is late by no more than the time it has taken
// already, and who waits for long costs next to nothing. Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weir {

class GrowingNap {
 public:
  static constexpr int64_t kFirstNs = 50'000;
  static constexpr int64_t kLongestNs = 100'000'000;

  // The length of the next nap.
  int64_t NextNs() {
    const int64_t now_ns = next_ns_;
    next_ns_ = std::min(2 * next_ns_, kLongestNs);
    return now_ns;
  }
  // It has changed: the next wait begins with a short nap again.
  void Reset() { next_ns_ = kFirstNs; }
  bool IsFirst() const { return next_ns_ == kFirstNs; }

 private:
  int64_t next_ns_ = kFirstNs;
};

}  // namespace weir
