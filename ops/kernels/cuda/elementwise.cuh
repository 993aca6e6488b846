// Kernels that compute each element of a result by itself share this: a thread computes a pack of N
// consecutive elements, the last thread fewer.
#pragma once

#include "ops/kernels/cuda/launch.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {

constexpr int kElementThreads = 256;

// Returns the blocks of kElementThreads threads for `count` elements, `per_thread` to a thread.
inline unsigned ElementBlocks(int64_t count, int64_t per_thread) {
  const int64_t per_block = kElementThreads * per_thread;
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

// Returns the number of the calling thread in the grid, whose blocks and grid have one dimension.
__device__ inline int64_t GridThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Returns elements [first, first + N) of `from`. Those from `count` on are zero, and are not read.
// `first` is a multiple of N, and `from` is aligned to a pack.
template <int N, typename T>
__device__ inline Pack<T, N> LoadPack(const T* from, int64_t first, int64_t count) {
  if (first + N <= count) return *reinterpret_cast<const Pack<T, N>*>(from + first);
  Pack<T, N> pack = {};
  for (int i = 0; i < N; ++i) {
    if (first + i < count) pack.at[i] = from[first + i];
  }
  return pack;
}

// Stores the pack as elements [first, first + N) of `to`, without those from `count` on.
template <int N, typename T>
__device__ inline void StorePack(T* to, int64_t first, int64_t count, const Pack<T, N>& pack) {
  if (first + N <= count) {
    StoreWhole(to + first, pack);
    return;
  }
  for (int i = 0; i < N; ++i) {
    if (first + i < count) to[first + i] = pack.at[i];
  }
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
