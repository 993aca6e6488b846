// A stand-in for an accelerator, for tests on any machine: a device whose memory the host cannot
// touch (walled_memory.h) and whose queues do their operations late, in an order that is drawn from
// a seed among those that the queues and their waits allow. Its kernels are those of the CPU
// (ops/kernels/walled), which put themselves into a queue. An operation begins and ends, and other
// queues may work in between. Code that reads too early, frees too early or lets two queues use one
// workspace gets other bits than the CPU's, or an error (W0535).
//
// Thread rule: as Device.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/device/device.h"

namespace weir::device {

struct WalledDeviceOptions {
  int num_threads = 1;
  int num_queues = 1;
  int depth = 1;
  uint64_t seed = 1;
  enum class Memory : uint8_t {
    kWalled,
    kHost,  // as the CPU's: for simulations, which look at it
  } memory = Memory::kWalled;
  enum class Drive : uint8_t {
    kPolls,  // each call of NumDone may do a part of an operation
    kOwner,  // nothing is done unless the owner says so, in virtual time
  } drive = Drive::kPolls;
};

class WalledDevice;

class WalledQueue final : public DeviceQueue {
 public:
  using Action = std::function<absl::Status()>;

  // `begin` and `run` are called later, in this order; `begin` may be null.
  void Put(Action begin, Action run);

  void Copy(char* to, const char* from, int64_t bytes) override;
  void CopyOut(void* to, const char* from, int64_t bytes) override;
  absl::Status Fill(char* at, int64_t bytes,
                    absl::FunctionRef<absl::Status(char* host)> fill) override;
  absl::Status Finish() override;

 private:
  friend class WalledDevice;
  WorkTimes& TimesOf(int64_t number) {
    return times_[static_cast<size_t>(number - 1) % times_.size()];
  }
  const WorkTimes& TimesOf(int64_t number) const {
    return times_[static_cast<size_t>(number - 1) % times_.size()];
  }

  struct Operation {
    Action begin, run;
    QueuePosition awaited;   // number > 0: nothing but a wait
    bool ends_work = false;  // nothing but the end of the oldest work that is not done
  };

  WalledDevice* device_ = nullptr;
  QueueId id_;
  std::deque<Operation> operations_;
  int64_t num_launched_ = 0;  // works
  int64_t num_done_ = 0;      // works that are done
  int64_t num_told_ = 0;      // works that the host has been told of
  std::vector<WorkTimes>
      times_;               // of the last works, by number: by their costs (kOwner), or as done
  bool has_begun_ = false;  // the oldest work that is not done (kPolls)
  int64_t free_at_ns_ = 0;  // when the last work will be done (kOwner)
};

class WalledDevice final : public Device {
 public:
  explicit WalledDevice(const WalledDeviceOptions& options);

  const char* kind() const override { return "walled"; }
  DeviceMemory& memory() override { return *memory_; }
  int num_queues() const override { return static_cast<int>(queues_.size()); }
  DeviceQueue& queue(QueueId id) override { return queues_[id]; }
  int depth() const override { return options_.depth; }
  Launched Launch(const DeviceWork& work) override;
  int64_t NumDone(QueueId queue) override;
  WorkTimes TimesOf(QueuePosition position) const override {
    return queues_[position.queue].TimesOf(position.number);
  }
  void Await(QueueId queue, QueuePosition position) override;
  absl::Status fault() const override { return fault_; }
  ThreadTeam* team() override { return &team_; }

  // The following functions are for the owner of a device with Drive::kOwner.

  // Step does the next part of the queue's next operation, if no wait holds the queue up.
  bool CanStep(QueueId queue) const;
  void Step(QueueId queue);  // precondition: CanStep
  // Does every operation that no wait holds up. NumDone does not tell of the works.
  void StepAll();
  // Returns how many works are issued that NumDone has not told of.
  int num_pending(QueueId queue) const {
    return static_cast<int>(queues_[queue].num_launched_ - queues_[queue].num_told_);
  }
  // Finishes the oldest of these works, so that NumDone tells of it. Precondition: CanComplete,
  // which means that the work waits for no work of another queue.
  bool CanComplete(QueueId queue) const;
  void CompleteOldest(QueueId queue);
  // Returns the virtual time at which the oldest of these works is done. A queue works without
  // gaps, except for its waits.
  int64_t oldest_done_ns(QueueId queue) const {
    return queues_[queue].TimesOf(queues_[queue].num_told_ + 1).end;
  }
  // Lets works that are launched from now on begin no earlier than `now_ns`.
  void NotBefore(int64_t now_ns);
  // Returns a hash of everything that decides what the queues may do next.
  uint64_t HashState() const;
  // Makes the device as new, and forgets all works.
  void Rewind();

 private:
  friend class WalledQueue;
  absl::Status Finish(WalledQueue& queue);
  void StepTowards(QueueId queue);
  static void Stamp(WalledQueue& queue, bool ends_work);

  const WalledDeviceOptions options_;
  const std::unique_ptr<DeviceMemory> memory_;
  IdVector<QueueId, WalledQueue> queues_;
  ThreadTeam team_;
  uint64_t num_draws_ = 0;
  int64_t now_ns_ = 0;
  absl::Status fault_;
};

}  // namespace weir::device
