// A WritePace keeps a writer at a mean rate: the writer tells how many bytes it has written and
// sleeps until so many bytes were due. The pace can be lifted and the writing can be ended from
// another thread, which wakes a writer that sleeps.
// Thread rule: Spend belongs to the writer; Lift and Stop to any thread.
#pragma once

#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace weir::train {

class WritePace {
 public:
  // `bytes_per_second` 0: no limit. `clock` must outlive the pace.
  WritePace(int64_t bytes_per_second, const Clock* clock)
      : bytes_per_second_(bytes_per_second), clock_(clock), begun_ns_(clock->NowNs()) {}

  // Returns how long a writer that has written `bytes` more must sleep. 0: the pace is lifted or
  // allows more.
  int64_t NsToSleep(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Notes `bytes` more and sleeps for that long. Returns false if the writing shall end.
  bool Spend(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  void Lift() ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const int64_t bytes_per_second_;
  const Clock* const clock_;
  const int64_t begun_ns_;
  Mutex mutex_;
  CondVar changed_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_lifted_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weir::train
