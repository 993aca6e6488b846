// Waits for a condition with a limit that counts only the time in which this process runs. A
// process that is stopped (Ctrl-Z, SIGSTOP, a suspended machine) and goes on later has as much of
// the limit left as before. Thread rule: as std::condition_variable.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace weir {

// Returns whether `holds` becomes true before the limit is used up.
template <typename Predicate>
bool WaitCounted(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                 int64_t limit_ms, Predicate holds) {
  constexpr int64_t kSliceMs = 100;  // a slice counts as this time, however long it takes
  for (int64_t left_ms = limit_ms; left_ms > 0; left_ms -= kSliceMs) {
    if (changed.wait_for(lock, std::chrono::milliseconds(std::min(left_ms, kSliceMs)), holds))
      return true;
  }
  return holds();
}

}  // namespace weir
