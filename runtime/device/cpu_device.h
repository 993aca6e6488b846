// The CPU as a device: does each work at once on the calling thread, which leads the device's team
// of cores. It has one queue. Thread rule: as Device.
#pragma once

#include "runtime/device/device.h"
#include "runtime/device/host_memory.h"

namespace weir::device {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads) : team_(num_threads) {}

  const char* kind() const override { return "cpu"; }
  DeviceMemory& memory() override { return memory_; }
  int num_queues() const override { return 1; }
  DeviceQueue& queue(QueueId) override { return queue_; }
  int depth() const override { return 1; }
  Launched Launch(const DeviceWork& work) override {
    work.run(work.context);
    return Launched::kDone;
  }
  int64_t NumDone(QueueId) override { return 0; }
  WorkTimes TimesOf(QueuePosition) const override { return {}; }  // no work has a number
  void Await(QueueId, QueuePosition) override {}
  absl::Status fault() const override { return absl::OkStatus(); }
  ThreadTeam* team() override { return &team_; }

 private:
  HostMemory memory_;
  ImmediateQueue queue_{&memory_};
  ThreadTeam team_;
};

}  // namespace weir::device
