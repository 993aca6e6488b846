// The CPU as a device: runs each act at once on the calling thread, which leads the
// device's team of cores. Thread rule: as Device.
#pragma once

#include "runtime/device/device.h"
#include "runtime/device/host_memory.h"

namespace weir {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads) : team_(num_threads) {}

  const char* kind() const override { return "cpu"; }
  DeviceMemory& memory() override { return memory_; }
  Launched Launch(const DeviceWork& work) override {
    work.run(work.context);
    return Launched::kCompleted;
  }
  bool TakeCompletion() override { return false; }
  int queue_depth() const override { return 1; }
  ThreadTeam* team() override { return &team_; }

 private:
  HostMemory memory_;
  ThreadTeam team_;
};

}  // namespace weir
