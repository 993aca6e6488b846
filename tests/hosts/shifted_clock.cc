// Loaded with LD_PRELOAD, lets a process read a time of day that is CLOCK_OFFSET_S seconds ahead: a
// host whose clock is wrong. The machine's clock and all other clocks of the process stay right.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

namespace {

time_t OffsetS() {
  const char* const offset = std::getenv("CLOCK_OFFSET_S");
  return offset == nullptr ? 0 : std::atol(offset);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (::syscall(SYS_clock_gettime, clock, now) != 0) return -1;
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += OffsetS();
  return 0;
}

time_t time(time_t* now) noexcept {
  timespec real = {};
  clock_gettime(CLOCK_REALTIME, &real);
  if (now != nullptr) *now = real.tv_sec;
  return real.tv_sec;
}

int gettimeofday(timeval* now, void*) noexcept {
  timespec real = {};
  clock_gettime(CLOCK_REALTIME, &real);
  now->tv_sec = real.tv_sec;
  now->tv_usec = real.tv_nsec / 1000;
  return 0;
}

}  // extern "C"
