// A stand-in for an accelerator: a device whose memory the host cannot touch (walled_memory.h). Its
// kernels are those of the CPU, which reach the memory from inside the wall (ops/kernels/walled).
// Work is done at once. Thread rule: as Device.
#pragma once

#include "runtime/device/device.h"
#include "runtime/device/walled_memory.h"

namespace weir {

class WalledDevice final : public Device {
 public:
  explicit WalledDevice(int num_threads) : team_(num_threads) {}

  const char* kind() const override { return "walled"; }
  DeviceMemory& memory() override { return memory_; }
  Launched Launch(const DeviceWork& work) override {
    work.run(work.context);
    return Launched::kCompleted;
  }
  bool TakeCompletion() override { return false; }
  int queue_depth() const override { return 1; }
  ThreadTeam* team() override { return &team_; }

 private:
  WalledMemory memory_;
  ThreadTeam team_;
};

}  // namespace weir
