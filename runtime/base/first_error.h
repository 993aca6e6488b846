// The first error of work that runs on several threads.
// Thread rule: any thread.
#pragma once

#include "absl/status/status.h"
#include "runtime/base/mutex.h"

namespace weir {

class FirstError {
 public:
  // Keeps `status` if it is the first error.
  void Update(const absl::Status& status) {
    MutexLock lock(&mutex_);
    status_.Update(status);
  }
  // Returns the first error so far; OK if there is none.
  absl::Status status() const {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir
