// A Clock is the source of time, behind an interface so that a simulator can replace it. Only the
// engine and the trace read a clock; the actor protocol never does.
#pragma once

#include <cstdint>

namespace weir {

class Clock {
 public:
  virtual ~Clock() = default;
  // Returns nanoseconds since an arbitrary start; never goes back. Any thread.
  virtual int64_t NowNs() const = 0;
};

// A MonotonicClock reads CLOCK_MONOTONIC.
class MonotonicClock final : public Clock {
 public:
  int64_t NowNs() const override;
};

// Returns nanoseconds since 1970, as the machine's own time tells them: to compare machines. The
// time may jump, so durations come from a Clock. Any thread.
int64_t RealTimeNs();

// A test or the simulator moves a ManualClock. Thread rule: one thread.
class ManualClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void AdvanceTo(int64_t now_ns) { now_ns_ = now_ns > now_ns_ ? now_ns : now_ns_; }

 private:
  int64_t now_ns_ = 0;
};

}  // namespace weir
