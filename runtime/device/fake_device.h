// A device in virtual time: work is queued, and completes when the owner of the time
// says so. Whether the body runs at launch or at completion can be chosen, since a
// plan must allow both; the simulator draws it.
// Thread rule: as Device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "runtime/device/device.h"
#include "runtime/device/host_memory.h"

namespace weir {

class FakeDevice final : public Device {
 public:
  enum class RunBody : uint8_t { kAtLaunch, kAtCompletion };

  explicit FakeDevice(int queue_depth = 1) : queue_depth_(queue_depth), team_(1) {}

  const char* kind() const override { return "cpu"; }
  DeviceMemory& memory() override { return memory_; }
  Launched Launch(const DeviceWork& work) override;
  bool TakeCompletion() override;
  int queue_depth() const override { return queue_depth_; }
  ThreadTeam* team() override { return &team_; }

  // Of the works launched from now on.
  void set_run_body(RunBody when) { run_body_ = when; }

  // Works not yet completed; when the oldest of them will be, in its own time (the
  // device works without gaps as long as it has work).
  int num_pending() const { return static_cast<int>(queue_.size()) - num_completed_; }
  int64_t oldest_done_ns() const { return queue_[num_completed_].done_ns; }
  // The oldest pending work completes. Precondition: num_pending() > 0.
  void CompleteOldest();
  // Work launched from now on starts no earlier than this.
  void NotBefore(int64_t now_ns) { now_ns_ = std::max(now_ns_, now_ns); }
  // As new; what was queued is forgotten.
  void Rewind() {
    queue_.clear();
    num_completed_ = 0;
    now_ns_ = 0;
    run_body_ = RunBody::kAtLaunch;
  }
  // Whether the k-th oldest pending work has run already.
  bool has_run(int k) const { return queue_[num_completed_ + k].run_body == RunBody::kAtLaunch; }
  // Time is now at least `now_ns`: what is done by then completes.
  void AdvanceTo(int64_t now_ns);

 private:
  struct Queued {
    DeviceWork work;
    RunBody run_body;
    int64_t done_ns;
  };
  int queue_depth_;
  RunBody run_body_ = RunBody::kAtLaunch;
  int64_t now_ns_ = 0;
  int num_completed_ = 0;  // at the front of queue_, not taken yet
  std::deque<Queued> queue_;
  HostMemory memory_;
  ThreadTeam team_;
};

}  // namespace weir
