// Time for the act trace and for devices: a reading as cheap as the machine has, in ticks of
// unknown length, and the two readings that turn ticks into nanoseconds afterwards. On x86 ticks
// are those of the time-stamp counter, elsewhere nanoseconds. Thread rule: Now is a pure reading; a
// TickScale is a value.
#pragma once

#include <cstdint>

#include "runtime/base/clock.h"

namespace weir {

struct TickClock {
  static int64_t Now() {
#if defined(__x86_64__)
    // The builtin in place of __rdtsc: <x86intrin.h> costs every file that includes this one half
    // a second.
    return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
    return MonotonicClock().NowNs();
#endif
  }
};

// A TickMoment is one moment read in both measures.
struct TickMoment {
  int64_t ns = 0;  // of CLOCK_MONOTONIC
  int64_t ticks = 0;
  // Reads the present moment a few times and returns the best reading: a thread may lose its core
  // between the two measures.
  static TickMoment Now() {
    TickMoment best;
    int64_t best_width = -1;
    for (int i = 0; i < 4; ++i) {
      const int64_t before = TickClock::Now();
      const int64_t ns = MonotonicClock().NowNs();
      const int64_t width = TickClock::Now() - before;
      if (best_width >= 0 && width >= best_width) continue;
      best_width = width;
      best = {ns, before + width / 2};
    }
    return best;
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
    const TickMoment now = TickMoment::Now();
    return Between(now, now);
  }
  void Close() {
    if (identity_) return;
    const int64_t ahead_ns = ahead_ns_;
    *this = Between({first_ns_, first_ticks_}, TickMoment::Now());
    ahead_ns_ = ahead_ns;
  }
  // Returns the line through two moments.
  static TickScale Between(const TickMoment& first, const TickMoment& last) {
    TickScale scale;
    scale.first_ns_ = first.ns;
    scale.first_ticks_ = first.ticks;
    scale.identity_ = false;
    if (last.ticks > first.ticks)
      scale.ns_per_tick_ =
          static_cast<double>(last.ns - first.ns) / static_cast<double>(last.ticks - first.ticks);
    return scale;
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
