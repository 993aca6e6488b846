#include "tools/train/write_pace.h"

#include <algorithm>

namespace weir::train {

int64_t WritePace::NsToSleep(int64_t bytes) {
  MutexLock lock(&mutex_);
  bytes_ += bytes;
  if (bytes_per_second_ <= 0 || is_lifted_ || is_stopped_) return 0;
  const double due_ns = static_cast<double>(bytes_) * 1e9 / static_cast<double>(bytes_per_second_);
  return std::max<int64_t>(0, begun_ns_ + static_cast<int64_t>(due_ns) - clock_->NowNs());
}

bool WritePace::Spend(int64_t bytes) {
  const int64_t ns = NsToSleep(bytes);
  MutexLock lock(&mutex_);
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_lifted_ || is_stopped_;
  };
  if (ns > 0) changed_.WaitFor(&mutex_, (ns + 999'999) / 1'000'000, is_over);
  return !is_stopped_;
}

void WritePace::Lift() {
  MutexLock lock(&mutex_);
  is_lifted_ = true;
  changed_.NotifyAll();
}

void WritePace::Stop() {
  MutexLock lock(&mutex_);
  is_stopped_ = true;
  changed_.NotifyAll();
}

}  // namespace weir::train
