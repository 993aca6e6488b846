#include "ops/kernels/cuda/attention_cached.h"

#include "ops/kernels/cuda/block_reduce.cuh"
#include "ops/kernels/cuda/elementwise.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 128;

// A thread has one element of a head of k of one batch row, and passes over the positions in their
// order: of two that go to one slot, the later one stays.
template <typename T>
__global__ void KeepKernel(CachedAttentionWork work) {
  const int64_t at = GridThread(), stride = work.groups * work.width;
  if (at >= work.batch * stride) return;
  const int64_t row = at / stride, element = at % stride;
  const T* k = static_cast<const T*>(work.k) + row * work.length * stride + element;
  const T* v = static_cast<const T*>(work.v) + row * work.length * stride + element;
  T* keys = static_cast<T*>(work.keys) + row * work.slots * stride + element;
  T* values = static_cast<T*>(work.values) + row * work.slots * stride + element;
  for (int64_t s = 0; s < work.length; ++s) {
    const int64_t position = work.positions[row * work.length + s];
    if (position < 0 || position >= work.slots) continue;
    keys[position * stride] = k[s * stride];
    values[position * stride] = v[s * stride];
  }
}

// A block has a query of one head at a time. First each warp computes the scores of every n-th
// slot, then each thread sums up some elements of the result.
template <typename T>
__global__ void AttendKernel(CachedAttentionWork work) {
  WEIR_SHARED(float, scratch);
  float* const scores = work.scores + blockIdx.x * work.slots;
  const int64_t stride = work.groups * work.width;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (int64_t query = blockIdx.x; query < work.batch * work.length * work.heads;
       query += gridDim.x) {
    const int64_t head = query % work.heads, token = query / work.heads;
    const int64_t row = token / work.length, group = head / (work.heads / work.groups);
    const T* q = static_cast<const T*>(work.q) + query * work.width;
    T* o = static_cast<T*>(work.o) + query * work.width;
    const int64_t position = work.positions[token];
    const int64_t end = position < 0 || position >= work.slots ? 0 : position + 1;
    const int64_t begin = work.window > 0 && end > work.window ? end - work.window : 0;
    const int64_t first = (row * work.slots * work.groups + group) * work.width;
    const T* keys = static_cast<const T*>(work.keys) + first;
    const T* values = static_cast<const T*>(work.values) + first;
    float max = -Infinity();
    for (int64_t t = begin + warp; t < end; t += warps) {
      float sum = 0;
      for (int64_t i = lane; i < work.width; i += kWarp)
        sum += ToFloat(q[i]) * ToFloat(keys[t * stride + i]);
      sum = WarpReduce(sum, Plus()) * work.scale;
      if (lane == 0) scores[t] = sum;
      max = MaxOrNaN(max, sum);
    }
    max = BlockMax(max, scratch);
    __syncthreads();
    float total = 0;
    for (int64_t t = begin + threadIdx.x; t < end; t += blockDim.x) {
      scores[t] = expf(scores[t] - max);
      total += scores[t];
    }
    total = BlockSum(total, scratch);
    __syncthreads();
    // The result of a position without a slot is 0.
    const float factor = end == 0 ? 0.0f : 1.0f / total;
    for (int64_t i = threadIdx.x; i < work.width; i += blockDim.x) {
      float sum = 0;
      for (int64_t t = begin; t < end; ++t) sum += scores[t] * ToFloat(values[t * stride + i]);
      Store(&o[i], sum * factor);
    }
    __syncthreads();
  }
}

template <typename T>
void LaunchOf(const CachedAttentionWork& work, device::CudaStream stream) {
  Launch(stream, &KeepKernel<T>, dim3(ElementBlocks(work.batch * work.groups * work.width, 1)),
         dim3(kElementThreads), 0, work);
  if (work.num_blocks() == 0) return;
  Launch(stream, &AttendKernel<T>, dim3(static_cast<unsigned>(work.num_blocks())), dim3(kThreads),
         kBlockScratch * sizeof(float), work);
}

}  // namespace

void LaunchCachedAttention(const CachedAttentionWork& work, device::CudaStream stream) {
  if (work.batch * work.length * work.groups * work.width == 0) return;
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
