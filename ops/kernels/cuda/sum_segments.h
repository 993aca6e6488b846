// Sums of partial sums over segments on a GPU: the second of two passes, in one order.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// y[i] = the sum over segments of partials[segment * stride + i], for i < n.
struct SumSegmentsWork {
  const float* partials = nullptr;
  int64_t stride = 0, segments = 0, n = 0;
  DType dtype = DType::kF32;
  void* y = nullptr;
};

void LaunchSumSegments(const SumSegmentsWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
