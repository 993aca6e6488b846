// Time for the act trace and for devices: a reading as cheap as the machine has, in ticks of
// unknown length, and the two readings that turn ticks into nanoseconds afterwards. On x86 ticks
// are those of the time-stamp counter, elsewhere nanoseconds. Thread rule: Now is a pure reading; a
// TickScale is a value.
#pragma once

#include <cstdint>

#include "runtime/base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace weir {

struct TickClock {
  static int64_t Now() {
#if defined(__x86_64__)
    return static_cast<int64_t>(__rdtsc());
#else
    return MonotonicClock().NowNs();
#endif
  }
};

// A TickScale holds two moments read in both measures: the line through them turns ticks into time,
// less the time by which this clock is ahead.
class TickScale {
 public:
  // In the default scale ticks are nanoseconds already (virtual time).
  TickScale() = default;
  // Opens with the present moment; Close() adds the second moment.
  static TickScale Open() {
    TickScale scale;
    scale.first_ns_ = MonotonicClock().NowNs();
    scale.first_ticks_ = TickClock::Now();
    scale.identity_ = false;
    return scale;
  }
  void Close() {
    if (identity_) return;
    const int64_t ns = MonotonicClock().NowNs(), ticks = TickClock::Now();
    ns_per_tick_ = ticks > first_ticks_ ? static_cast<double>(ns - first_ns_) /
                                              static_cast<double>(ticks - first_ticks_)
                                        : 1;
  }
  // Makes all times from now on less by `ns`: they become the times of a clock that this clock is
  // ahead of.
  void Subtract(int64_t ns) { ahead_ns_ += ns; }
  int64_t ToNs(int64_t ticks) const {
    if (identity_) return ticks - ahead_ns_;
    return first_ns_ - ahead_ns_ +
           static_cast<int64_t>(static_cast<double>(ticks - first_ticks_) * ns_per_tick_);
  }

 private:
  bool identity_ = true;
  int64_t ahead_ns_ = 0;
  int64_t first_ns_ = 0;
  int64_t first_ticks_ = 0;
  double ns_per_tick_ = 1;
};

}  // namespace weir
