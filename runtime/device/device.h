// A Device has a memory of its own and runs acts one after another, in the order given. The engine
// launches and is told of completions; it makes no difference to the engine whether the work is
// done at once (CPU), later (an accelerator) or in virtual time (the fake). Not here: what the work
// is. Kernels are built above this. Thread rule: all calls from the thread that owns the rank.
#pragma once

#include <cstdint>

#include "runtime/device/device_memory.h"
#include "runtime/device/thread_team.h"

namespace weir {

struct DeviceWork {
  void (*run)(void* context) = nullptr;
  void* context = nullptr;  // valid until the completion has been taken
  int64_t cost_ns = 0;      // what it takes on a device with virtual time
};

class Device {
 public:
  enum class Launched : uint8_t {
    kCompleted,  // done on return; no completion will follow
    kQueued,     // TakeCompletion will tell
  };

  virtual ~Device() = default;
  // The name of the kind, which is also the name of its kernels: "cpu".
  virtual const char* kind() const = 0;
  virtual DeviceMemory& memory() = 0;
  // Precondition: fewer than queue_depth() works are queued. Does not allocate.
  virtual Launched Launch(const DeviceWork& work) = 0;
  // Whether the oldest queued work has completed; takes that completion. Never blocks.
  virtual bool TakeCompletion() = 0;
  // Works that may be queued at once, at least 1.
  virtual int queue_depth() const = 0;
  // The cores that kernels of this device may use; null if it has none.
  virtual ThreadTeam* team() = 0;
};

}  // namespace weir
