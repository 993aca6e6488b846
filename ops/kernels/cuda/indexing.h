// take, gather, segment_sum, scatter_add and one_hot on a GPU. The wide operand is [outer, rows,
// inner] and the narrow one [outer, count, inner]; ops/kernels/shape/indexing_shape.h says what the
// sizes and strides mean. An index outside [first, first + rows) stands for no row.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

struct IndexedSizes {
  int64_t outer = 0, rows = 0, first = 0, count = 0, inner = 0;
  int64_t outer_stride = 0, count_stride = 0, inner_stride = 0;
};

// y[o, i, j] = x[o, index, j], or 0 for no row. `element_bytes` is 1, 2 or 4.
struct IndexedReadWork {
  IndexedSizes sizes;
  int element_bytes = 4;
  const void* x = nullptr;
  const int32_t* index = nullptr;
  void* y = nullptr;
};
void LaunchIndexedRead(const IndexedReadWork& work, device::CudaStream stream);

// y[o, index, j] = the sum of x[o, i, j] in the order of i.
struct IndexedSumWork {
  IndexedSizes sizes;
  DType x_dtype = DType::kF32, y_dtype = DType::kF32;
  const void* x = nullptr;
  const int32_t* index = nullptr;
  void* y = nullptr;
  void* workspace = nullptr;  // IndexedSumWorkspace bytes
};
// Returns the bytes of workspace.
int64_t IndexedSumWorkspace(const IndexedSizes& sizes, DType y_dtype);
// Precondition: count and rows are less than 2^31.
void LaunchIndexedSum(const IndexedSumWork& work, device::CudaStream stream);

// y[s, v] = 1 where ids[s] is first + v, else 0, for [0, samples) and [0, rows).
struct OneHotWork {
  DType dtype = DType::kF32;
  int64_t samples = 0, rows = 0, first = 0;
  const int32_t* ids = nullptr;
  void* y = nullptr;
};
void LaunchOneHot(const OneHotWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
