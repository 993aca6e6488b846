#include "ops/kernels/cuda/attention_cached.h"

#include "ops/kernels/cuda/block_reduce.cuh"
#include "ops/kernels/cuda/elementwise.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 128;

// Returns the slot of a position of a row in this part of the pool; -1: the position has no page
// there.
__device__ inline int64_t SlotOf(const CachedAttentionWork& work, int64_t row, int64_t position) {
  if (position < 0 || position >= work.slots) return -1;
  const int64_t page = work.table[row * work.entries + position / work.page_size];
  if (page <= 0 || page < work.first_page || page >= work.first_page + work.num_pages) return -1;
  return (page - work.first_page) * work.page_size + position % work.page_size;
}

// A thread has one element of a head of k of one batch row, and passes over the positions in their
// order: of two that go to one slot, the later one stays.
template <typename T>
__global__ void KeepKernel(CachedAttentionWork work) {
  const int64_t at = GridThread(), stride = work.groups * work.width;
  if (at >= work.batch * stride) return;
  const int64_t row = at / stride, element = at % stride;
  const T* k = static_cast<const T*>(work.k) + row * work.length * stride + element;
  const T* v = static_cast<const T*>(work.v) + row * work.length * stride + element;
  T* keys = static_cast<T*>(work.keys) + element;
  T* values = static_cast<T*>(work.values) + element;
  for (int64_t s = 0; s < work.length; ++s) {
    const int64_t slot = SlotOf(work, row, work.positions[row * work.length + s]);
    if (slot < 0) continue;
    keys[slot * stride] = k[s * stride];
    values[slot * stride] = v[s * stride];
  }
}

// A block has a query of one head at a time. First each warp computes the scores of every n-th
// position, then each thread sums up some elements of the result. A position without a page has the
// score -infinity.
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
    const int64_t end = SlotOf(work, row, position) < 0 ? 0 : position + 1;
    const int64_t begin = work.window > 0 && end > work.window ? end - work.window : 0;
    const T* keys = static_cast<const T*>(work.keys) + group * work.width;
    const T* values = static_cast<const T*>(work.values) + group * work.width;
    float max = -Infinity();
    for (int64_t t = begin + warp; t < end; t += warps) {
      const int64_t slot = SlotOf(work, row, t);
      float sum = slot < 0 ? -Infinity() : 0.0f;
      for (int64_t i = lane; i < work.width && slot >= 0; i += kWarp)
        sum += ToFloat(q[i]) * ToFloat(keys[slot * stride + i]);
      sum = WarpReduce(sum, Plus()) * (slot < 0 ? 1.0f : work.scale);
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
    // The result of a position without a page is 0.
    const float factor = end == 0 ? 0.0f : 1.0f / total;
    for (int64_t i = threadIdx.x; i < work.width; i += blockDim.x) {
      float sum = 0;
      for (int64_t t = begin; t < end;) {
        // The positions up to the end of the page lie one behind the other.
        const int64_t slot = SlotOf(work, row, t);
        const int64_t rest = work.page_size - t % work.page_size;
        const int64_t stop = end - t < rest ? end : t + rest;
        const T* value = values + (slot < 0 ? 0 : slot) * stride + i;
        for (int64_t seen = slot < 0 ? stop : t; seen < stop; ++seen) {
          sum += scores[seen] * ToFloat(*value);
          value += stride;
        }
        t = stop;
      }
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
