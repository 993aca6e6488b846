// A GPU as a device: each queue is a stream, and each work ends with an event of the stream. A
// queue awaits a position by the event of that position. Memory of the host that CUDA does not know
// never meets a stream, since that would make the host wait: what a queue fills or copies out
// passes through pinned memory, which the queue keeps until the host knows that the work is done.
//
// Works of a queue follow each other without gaps, so a work has begun when the work before it and
// the works that it awaited had ended, or when the host launched it. The ends are the times of the
// events, on the host's TickClock by a pair of readings that the device renews each second.
//
// A failure of the GPU stays and comes late: nothing is done after it.
//
// Several devices may have the same GPU, for ranks of one process. Thread rule: as Device.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/device/cuda/cuda_api.h"
#include "runtime/device/cuda/cuda_memory.h"
#include "runtime/device/cuda/cuda_queue.h"
#include "runtime/device/device.h"

namespace weir::device {

struct CudaDeviceOptions {
  const char* kind = "cuda";  // or "cuda-emulated"
  int gpu = 0;                // as cudaSetDevice numbers them
  int num_queues = 1;
  int depth = 1;
  QueueId collective_queue;  // that has collectives alone; none: there is no such queue
  // The time after which the clocks of host and GPU are compared anew.
  int64_t clocks_good_ns = 1'000'000'000;
};

class CudaDevice final : public Device {
 public:
  // Queue 1, which has the transfers of a job, and the queue of collectives have the higher
  // priority. Errors are those of the first calls to the GPU (W0553).
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(std::unique_ptr<CudaApi> api,
                                                            const CudaDeviceOptions& options);
  ~CudaDevice() override;

  const char* kind() const override { return options_.kind; }
  DeviceMemory& memory() override { return *memory_; }
  int num_queues() const override { return static_cast<int>(queues_.size()); }
  DeviceQueue& queue(QueueId id) override;
  int depth() const override { return options_.depth; }
  Launched Launch(const DeviceWork& work) override;
  int64_t NumDone(QueueId queue) override;
  WorkTimes TimesOf(QueuePosition position) const override;
  void Await(QueueId queue, QueuePosition position) override;
  absl::Status fault() const override { return fault_.ok() ? memory_->fault() : fault_; }
  ThreadTeam* team() override { return nullptr; }

 private:
  class Queue;
  // The places of one of the last works of a queue.
  struct Work {
    CudaEvent end;                 // recorded behind the work
    int64_t launched = 0;          // ticks
    std::vector<int64_t> awaited;  // by queue: the number that the work waited for; 0: none
    WorkTimes times;               // once the work is known to be done
  };

  CudaDevice(std::unique_ptr<CudaApi> api, const CudaDeviceOptions& options);
  absl::Status Open();
  void Fail(const absl::Status& status);
  // Keeps the first error. Returns whether the call succeeded.
  bool Succeeds(CudaResult result, const char* call);
  void FindTimes(Queue& queue, int64_t number);
  int64_t TicksOf(CudaEvent end);

  const std::unique_ptr<CudaApi> api_;
  const CudaDeviceOptions options_;
  std::unique_ptr<CudaMemory> memory_;
  IdVector<QueueId, std::unique_ptr<Queue>> queues_;
  absl::Status fault_;

  // An event whose time on the host is known, and the next one, of which the GPU has not told yet.
  struct Anchor {
    CudaEvent event;
    int64_t ticks = 0, ns = 0;
  };
  void RecordAnchor(Anchor* anchor);
  void RenewAnchor();
  CudaStream anchor_stream_;
  Anchor anchor_, next_anchor_;
  bool anchor_is_due_ = false;          // next_anchor_ is recorded
  const int64_t made_ticks_, made_ns_;  // the same moment, in both measures
};

}  // namespace weir::device
