// A Device has a memory of its own and queues. A work is what one act does: operations that it puts
// into one queue. Works of a queue are done in the order of their launch; queues work beside each
// other unless Await joins them. The host learns by NumDone that a work is done, so that it can
// tell others; works of the device itself need no host between them. It makes no difference to the
// engine whether work is done at once (CPU), later (an accelerator) or in virtual time. The device
// knows when a work began and ended (TimesOf), which the host hears later.
//
//   queue 0   work 1   work 2   work 3          position {0, 2}: after work 2 of queue 0
//   queue 1            await {0, 2}   work 1
//
// Not here: what a work is; kernels are built above this. Thread rule: all calls from the thread
// that owns the rank.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/ids.h"
#include "runtime/device/device_memory.h"
#include "runtime/device/device_queue.h"
#include "runtime/device/thread_team.h"

namespace weir::device {

// A place in the order of a queue: after its `number`th work, counted from 1. 0: before all.
struct QueuePosition {
  QueueId queue{0};
  int64_t number = 0;
};

// The times of a work on its queue: ticks of TickClock, or nanoseconds of virtual time on a device
// that works in virtual time.
struct WorkTimes {
  int64_t begin = 0;
  int64_t end = 0;
};

struct DeviceWork {
  // Is called once, before Launch returns: puts operations into the queue.
  void (*run)(void* context) = nullptr;
  void* context = nullptr;
  int64_t cost_ns = 0;  // what it takes on a device with virtual time
  QueueId queue{0};
};

class Device {
 public:
  enum class Launched : uint8_t {
    kDone,    // on return; the work has no number
    kIssued,  // NumDone will tell
  };

  virtual ~Device() = default;
  // Returns the name of the kind, which is also the name of the kind's kernels: "cpu".
  virtual const char* kind() const = 0;
  virtual DeviceMemory& memory() = 0;
  virtual int num_queues() const = 0;  // at least 1
  virtual DeviceQueue& queue(QueueId id) = 0;
  // Returns how many works of all queues together may be issued and not done; at least 1.
  virtual int depth() const = 0;

  // Precondition: fewer than depth() works are issued and not done.
  virtual Launched Launch(const DeviceWork& work) = 0;
  // Returns how many of the works that were issued to this queue are done. Never blocks.
  virtual int64_t NumDone(QueueId queue) = 0;
  // Returns when the work that ends at `position` began and ended. Precondition: NumDone has told
  // of that work, or of one that awaited it, and fewer than depth() works have been launched on its
  // queue after it.
  virtual WorkTimes TimesOf(QueuePosition position) const = 0;
  // Lets all works that are launched on `queue` from now on begin after `position`. Precondition:
  // the position is one of another queue.
  virtual void Await(QueueId queue, QueuePosition position) = 0;
  // Returns the error of the first operation that failed later than its launch. The error stays.
  virtual absl::Status fault() const = 0;

  // Returns the cores that kernels of this device may use; null if the device has none.
  virtual ThreadTeam* team() = 0;
};

}  // namespace weir::device
