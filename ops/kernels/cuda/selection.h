// top_k, argmax and cumsum on a GPU. x is [outer, n, inner], and the work is along n.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// values and indices are [outer, k, inner]. Of equal elements, that with the lower place comes
// first; NaN counts as the largest. argmax is indices alone with k = 1.
struct TopKWork {
  DType dtype = DType::kF32;
  int64_t outer = 0, n = 0, inner = 0, k = 1;
  bool largest = true;
  const void* x = nullptr;
  void* values = nullptr;      // null: not asked for
  int32_t* indices = nullptr;  // null: not asked for
};
// Precondition: 1 <= k <= n < 2^31, or there are no columns.
void LaunchTopK(const TopKWork& work, device::CudaStream stream);

struct CumsumWork {
  DType dtype = DType::kF32;
  int64_t outer = 0, n = 0, inner = 0;
  bool exclusive = false, reverse = false;
  const void* x = nullptr;
  void* y = nullptr;
};
void LaunchCumsum(const CumsumWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
