// attention_cached on a GPU: one launch writes the new keys and values to their pages, and another
// one attends, with one block for each query of each head.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// The sizes of CachedAttentionShape (ops/kernels/shape/cached_attention_shape.h), for kernels.
struct CachedAttentionWork {
  int64_t batch = 0, length = 0, heads = 0, groups = 0, width = 0;
  int64_t entries = 0, page_size = 0, first_page = 0, num_pages = 0;
  int64_t slots = 0;  // entries * page_size
  DType dtype = DType::kF32;
  int64_t window = 0;  // 0: all positions
  float scale = 1;
  const void* q = nullptr;             // [batch, length, heads, width]
  const void* k = nullptr;             // [batch, length, groups, width]
  const void* v = nullptr;             // as k
  const int32_t* positions = nullptr;  // [batch, length]
  const int32_t* table = nullptr;      // [batch, entries]
  void* o = nullptr;                   // as q
  void* keys = nullptr;                // [num_pages, page_size, groups, width]
  void* values = nullptr;              // as keys
  // The launch's own memory: the scores of each block, [blocks][slots].
  float* scores = nullptr;

  int64_t num_blocks() const {
    const int64_t queries = batch * length * heads;
    return queries < kBlocksMax ? queries : kBlocksMax;
  }
  int64_t scores_bytes() const { return num_blocks() * slots * int64_t{sizeof(float)}; }

  // Blocks take turns over the queries, so that their scores take bounded memory.
  static constexpr int64_t kBlocksMax = 1024;
};

void LaunchCachedAttention(const CachedAttentionWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
