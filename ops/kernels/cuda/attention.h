// attention and attention_grad on a GPU: kernels for every shape, type and mask. Scores exist one
// tile of 64 queries x 64 keys at a time. Sums are in f32 and in a fixed order.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// The sizes of AttentionShape (ops/kernels/shape/attention_shape.h), for kernels.
struct AttentionSizes {
  int64_t batch = 0, length = 0, keys = 0, heads = 0, groups = 0, width = 0;
  DType dtype = DType::kF32;
  bool causal = true;
  int64_t window = 0;  // at most `length`; 0: all keys
  float scale = 1;
  bool has_mask = false;
  DType mask_dtype = DType::kBool;
  // Elements from a batch, a head, a query or a key of the mask to the next.
  int64_t mask_batch = 0, mask_head = 0, mask_query = 0, mask_key = 0;
};

struct AttentionWork {
  AttentionSizes sizes;
  const void* q = nullptr;     // [batch, length, heads, width]
  const void* k = nullptr;     // [batch, keys, groups, width]
  const void* v = nullptr;     // as k
  const void* mask = nullptr;  // may be null
  void* o = nullptr;           // as q
  float* lse = nullptr;        // [batch, heads, length]; may be null
};

void LaunchAttention(const AttentionWork& work, device::CudaStream stream);

struct AttentionGradWork {
  AttentionSizes sizes;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* o = nullptr;
  const float* lse = nullptr;
  const void* d_o = nullptr;
  const void* mask = nullptr;  // may be null
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  float* d_scores = nullptr;  // [batch, heads, length, keys]; may be null
  float* inner = nullptr;     // workspace, [batch, heads, length]
};

void LaunchAttentionGrad(const AttentionGradWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
