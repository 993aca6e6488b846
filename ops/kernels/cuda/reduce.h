// reduce_sum, reduce_mean and reduce_max over some axes, expand and reduce_max_grad, on a GPU.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/axis_walk.h"
#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

enum class Reduction : uint8_t { kSum, kMax };

// y = reduction(x) factor, where y lacks the reduced axes. If x is empty, y gets the neutral
// element.
struct ReduceWork {
  Reduction reduction = Reduction::kSum;
  DType x_dtype = DType::kF32, y_dtype = DType::kF32;
  float factor = 1;
  int64_t num_x = 0, num_y = 0;  // elements
  AxisWalk walk;                 // of x
  const void* x = nullptr;
  void* y = nullptr;
  float* partials = nullptr;  // ReduceWorkspace bytes
};
// Returns the bytes of workspace; addresses need not be set.
int64_t ReduceWorkspace(const ReduceWork& work);
void LaunchReduction(const ReduceWork& work, device::CudaStream stream);

// dx = dy along the reduced axes of dx; where x is not null, only where x equals y.
struct ExpandWork {
  DType dtype = DType::kF32;
  int64_t num_dx = 0;  // elements
  AxisWalk walk;       // of dx
  const void* x = nullptr;
  const void* y = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
};
void LaunchExpand(const ExpandWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
