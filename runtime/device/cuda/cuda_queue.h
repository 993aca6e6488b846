// The queue of a CUDA device, as kernels for CUDA see it. Thread rule: as DeviceQueue.
#pragma once

#include "runtime/device/cuda/cuda_stream.h"
#include "runtime/device/device_queue.h"

namespace weir::device {

class CudaQueue : public DeviceQueue {
 public:
  // Returns the stream that does the queue's operations, in order.
  virtual CudaStream stream() = 0;
};

}  // namespace weir::device
