// A DeviceQueue is one of the queues of a device, as seen by the code that puts operations into the
// queue: kernels, feeds, packers. A queue does its operations in the order in which they were put
// there, at once (CPU) or later. Thread rule: the thread that owns the rank.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/device/device_memory.h"

namespace weir::device {

// A DeviceChain is a row of operations that a caller puts into one queue again and again, with
// other numbers and addresses each time. The device may keep them as a graph, which it launches at
// once. The queue outlives its chains. Thread rule: as DeviceQueue.
class DeviceChain {
 public:
  virtual ~DeviceChain() = default;
  // Does what putting the operations of one call of `put` into the queue does. `put` is called at
  // least once and at most three times; each call puts the same operations there, none of which
  // may be Fill, CopyOut or Finish. The errors are those of `put`, and those of the device.
  virtual absl::Status Run(absl::FunctionRef<absl::Status()> put) = 0;
};

class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  // `to` and `from` are addresses of the device.
  virtual void Copy(char* to, const char* from, int64_t bytes) = 0;
  // `to` is memory of the host that stays until the operation is done.
  virtual void CopyOut(void* to, const char* from, int64_t bytes) = 0;
  // Calls `fill` before it returns; what `fill` has written comes to `at` in the queue's order.
  // `fill` gets memory of the host, with undefined contents. Where it fails, nothing is put into
  // the queue, and the bytes at `at` are undefined.
  virtual absl::Status Fill(char* at, int64_t bytes,
                            absl::FunctionRef<absl::Status(char* host)> fill) = 0;
  // Waits until this queue has done all its operations. Callers that measure or inspect
  // single operations need this wait.
  virtual absl::Status Finish() = 0;

  // kMust: a row of operations that cannot be kept is an error (W0965). kMay: it is put into the
  // queue one by one.
  enum class Chains : uint8_t { kMay, kMust };
  // Returns null if this queue has nothing better than its operations one by one.
  virtual std::unique_ptr<DeviceChain> MakeChain(Chains /*chains*/) { return nullptr; }
};

// The queue of a device whose operations are done on return.
class ImmediateQueue final : public DeviceQueue {
 public:
  explicit ImmediateQueue(DeviceMemory* memory) : memory_(*memory) {}

  void Copy(char* to, const char* from, int64_t bytes) override { memory_.Copy(to, from, bytes); }
  void CopyOut(void* to, const char* from, int64_t bytes) override {
    memory_.CopyOut(to, from, bytes);
  }
  absl::Status Fill(char* at, int64_t bytes,
                    absl::FunctionRef<absl::Status(char* host)> fill) override {
    return memory_.Fill(at, bytes, fill);
  }
  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  DeviceMemory& memory_;
};

}  // namespace weir::device
