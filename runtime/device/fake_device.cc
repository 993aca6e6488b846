#include "runtime/device/fake_device.h"

#include <algorithm>

namespace weir {

Device::Launched FakeDevice::Launch(const DeviceWork& work) {
  const int64_t start = queue_.empty() ? now_ns_ : std::max(now_ns_, queue_.back().done_ns);
  queue_.push_back({work, run_body_, start + work.cost_ns});
  if (run_body_ == RunBody::kAtLaunch) work.run(work.context);
  return Launched::kQueued;
}

void FakeDevice::CompleteOldest() {
  Queued& oldest = queue_[num_completed_];
  now_ns_ = std::max(now_ns_, oldest.done_ns);
  if (oldest.run_body == RunBody::kAtCompletion) oldest.work.run(oldest.work.context);
  ++num_completed_;
}

void FakeDevice::AdvanceTo(int64_t now_ns) {
  while (num_pending() > 0 && oldest_done_ns() <= now_ns) CompleteOldest();
  now_ns_ = std::max(now_ns_, now_ns);
}

bool FakeDevice::TakeCompletion() {
  if (num_completed_ == 0) return false;
  queue_.pop_front();
  --num_completed_;
  return true;
}

}  // namespace weir
