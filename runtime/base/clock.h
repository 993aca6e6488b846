// Time comes in through this interface, so that a simulator can own it. Only the
// engine and the trace read it; the actor protocol never does.
#pragma once

#include <cstdint>

namespace weir {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary start; never goes back. Any thread.
  virtual int64_t NowNs() const = 0;
};

// CLOCK_MONOTONIC.
class MonotonicClock final : public Clock {
 public:
  int64_t NowNs() const override;
};

// A clock that a test or the simulator moves. One thread.
class ManualClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void AdvanceTo(int64_t now_ns) { now_ns_ = now_ns > now_ns_ ? now_ns : now_ns_; }

 private:
  int64_t now_ns_ = 0;
};

}  // namespace weir
