// A QueueClock knows the positions that each queue of a device has waited for. A wait for a
// position contains the waits for all earlier positions of the same queue. Thread rule: one thread
// at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/device/device.h"

namespace weir::device {

class QueueClock {
 public:
  explicit QueueClock(int num_queues)
      : num_queues_(num_queues), awaited_(static_cast<size_t>(num_queues) * num_queues, 0) {}

  // Returns whether `queue` must still wait for `position`. From then on `queue` counts as having
  // waited.
  bool Advance(QueueId queue, QueuePosition position) {
    int64_t& awaited = awaited_[queue.value() * num_queues_ + position.queue.value()];
    if (position.queue == queue || position.number <= awaited) return false;
    awaited = position.number;
    return true;
  }
  void Reset() { awaited_.assign(awaited_.size(), 0); }

 private:
  int num_queues_;
  std::vector<int64_t> awaited_;  // by waiting queue, then by awaited queue
};

}  // namespace weir::device
