// A CudaKernel puts its launches into the stream of a CUDA queue. Derived classes compute sizes
// when they are made and only enqueue when they run: they must not wait, allocate, or copy from
// memory of the host.
//
// Thread rule: as Kernel.
#pragma once

#include "absl/status/status.h"
#include "ops/kernels/cuda/cuda_mode.h"
#include "ops/kernels/kernel.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

class CudaKernel : public Kernel {
 public:
  // Precondition: launch.queue is a queue of a device of this kind.
  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) final;

 protected:
  // `args` and `workspace` hold addresses that launches may use. Both may change after the return.
  virtual absl::Status Enqueue(const KernelArgs& args, void* workspace,
                               device::CudaStream stream) = 0;
};

}  // namespace weir::kernels::WEIR_CUDA_SPACE
