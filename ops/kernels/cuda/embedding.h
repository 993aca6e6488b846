// embedding and its gradient on a GPU. A shard of the table has the rows [first, first + rows) of
// the vocabulary; ids outside that range contribute nothing.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

struct EmbeddingWork {
  DType dtype = DType::kF32;
  int64_t num_ids = 0, first = 0, rows = 0, width = 0;
  const void* table = nullptr;
  const int32_t* ids = nullptr;
  void* y = nullptr;
};
void LaunchEmbedding(const EmbeddingWork& work, device::CudaStream stream);

struct EmbeddingGradWork {
  DType dy_dtype = DType::kF32, dtable_dtype = DType::kF32;
  int64_t num_ids = 0, first = 0, rows = 0, width = 0;
  const int32_t* ids = nullptr;
  const void* dy = nullptr;
  void* dtable = nullptr;
  bool adds = false;  // to what dtable holds, where it is f32; rows without ids stay as they are
  void* workspace = nullptr;  // EmbeddingGradWorkspace bytes
};
// Returns the bytes of workspace.
int64_t EmbeddingGradWorkspace(int64_t num_ids, int64_t rows, int64_t width);
// Precondition: num_ids and rows are less than 2^31.
void LaunchEmbeddingGrad(const EmbeddingGradWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
