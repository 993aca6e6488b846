// The CPU as a device: runs each act at once on the calling thread, which leads the device's team
// of cores. The walled device is the same with memory that the host cannot touch (walled_memory.h),
// a stand-in for an accelerator; its kernels reach the memory from inside the wall
// (ops/kernels/walled). Thread rule: as Device.
#pragma once

#include <memory>
#include <utility>

#include "runtime/device/device.h"
#include "runtime/device/host_memory.h"
#include "runtime/device/walled_memory.h"

namespace weir {

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int num_threads)
      : CpuDevice("cpu", std::make_unique<HostMemory>(), num_threads) {}

  const char* kind() const override { return kind_; }
  DeviceMemory& memory() override { return *memory_; }
  Launched Launch(const DeviceWork& work) override {
    work.run(work.context);
    return Launched::kCompleted;
  }
  bool TakeCompletion() override { return false; }
  int queue_depth() const override { return 1; }
  ThreadTeam* team() override { return &team_; }

 protected:
  CpuDevice(const char* kind, std::unique_ptr<DeviceMemory> memory, int num_threads)
      : kind_(kind), memory_(std::move(memory)), team_(num_threads) {}

 private:
  const char* const kind_;
  const std::unique_ptr<DeviceMemory> memory_;
  ThreadTeam team_;
};

class WalledDevice final : public CpuDevice {
 public:
  explicit WalledDevice(int num_threads)
      : CpuDevice("walled", std::make_unique<WalledMemory>(), num_threads) {}
};

}  // namespace weir
