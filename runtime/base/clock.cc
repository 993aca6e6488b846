#include "runtime/base/clock.h"

#include <time.h>

namespace weir {

int64_t MonotonicClock::NowNs() const {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace weir
