#include "runtime/base/clock.h"

#include <time.h>

namespace weir {
namespace {

int64_t NsOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t MonotonicClock::NowNs() const { return NsOf(CLOCK_MONOTONIC); }

int64_t RealTimeNs() { return NsOf(CLOCK_REALTIME); }

}  // namespace weir
