#include "tools/launch/wake_event.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "runtime/base/problem.h"
#include "runtime/limits/process_limits.h"

namespace weir::launch {

int PollMs(int64_t ns) {
  constexpr int64_t kNsPerMs = 1000 * 1000;
  if (ns < 0) return -1;
  return static_cast<int>(
      std::min<int64_t>((ns + kNsPerMs - 1) / kNsPerMs, std::numeric_limits<int>::max()));
}

absl::StatusOr<OwnedDescriptor> WakeEvent::Open() {
  OwnedDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (event.open()) return event;
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {"W0093", "the starter", "a descriptor to be woken by", ::strerror(errno),
                  limits::ShortageAdvice(errno)});
}

void WakeEvent::Wake() {
  is_asked_.store(true);
  Poke();
}

void WakeEvent::Poke() const {
  const uint64_t one = 1;
  // The write fails only if the count is at its maximum, and then the descriptor is already
  // readable.
  if (::write(event_.get(), &one, sizeof(one)) < 0) return;
}

bool WakeEvent::TakeWake() {
  uint64_t count = 0;
  if (::read(event_.get(), &count, sizeof(count)) < 0) return false;
  return is_asked_.exchange(false);
}

}  // namespace weir::launch
