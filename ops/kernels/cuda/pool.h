// max_pool, average_pool and their gradients on a GPU.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

enum class Pool : uint8_t { kMax, kMaxGrad, kAverage, kAverageGrad };

// The windows along one dimension of a plane: WindowAxis (ops/kernels/shape/window_shape.h).
struct PoolAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
};

struct PoolWork {
  Pool pool = Pool::kMax;
  DType dtype = DType::kF32;
  int64_t planes = 0;
  PoolAxis axes[3];  // dimensions that an operand lacks have size 1
  bool counts_padding = true;
  const void* x = nullptr;     // [planes, in...]; null for the gradient of a mean
  const void* dy = nullptr;    // [planes, out...], for gradients
  void* y = nullptr;           // [planes, out...], or dx [planes, in...]
  int64_t* largest = nullptr;  // workspace of kMaxGrad, [planes, out...]
};

void LaunchPool(const PoolWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
