// softmax over the last axis and its gradient, on a GPU.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

struct SoftmaxWork {
  DType dtype = DType::kF32;
  int64_t rows = 0, n = 0;
  const void* x = nullptr;
  void* y = nullptr;
};
void LaunchSoftmax(const SoftmaxWork& work, device::CudaStream stream);

// dx = y (dy - sum(dy y)); dx may be y or dy.
struct SoftmaxGradWork {
  DType dtype = DType::kF32;
  int64_t rows = 0, n = 0;
  const void* y = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
};
void LaunchSoftmaxGrad(const SoftmaxGradWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
