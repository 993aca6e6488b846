// Waits for a condition with a limit that counts only the time in which this process runs. A
// process that is stopped (Ctrl-Z, SIGSTOP, a suspended machine) and goes on later has as much of
// the limit left as before. Thread rule: as CondVar (runtime/base/mutex.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/base/mutex.h"

namespace weir::control {

// Returns whether `holds` becomes true before the limit is used up. The body is not analysed, as in
// CondVar.
template <typename Predicate>
bool WaitCounted(CondVar* changed, Mutex* mutex, int64_t limit_ms, Predicate holds)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  constexpr int64_t kSliceMs = 100;  // a slice counts as this time, however long it takes
  for (int64_t left_ms = limit_ms; left_ms > 0; left_ms -= kSliceMs) {
    if (changed->WaitFor(mutex, std::min(left_ms, kSliceMs), holds)) return true;
  }
  return holds();
}

}  // namespace weir::control
