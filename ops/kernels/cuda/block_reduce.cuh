// Sums, maxima and minima over the threads of a warp or block, and walks over rows of memory by
// accesses of 16 bytes. Included by .cu files only.
#pragma once

#include "ops/kernels/cuda/launch.cuh"

#ifdef WEIR_CUDA_EMULATED
#define WEIR_UNROLL
#else
#define WEIR_UNROLL _Pragma("unroll")
#endif

namespace weir::kernels::WEIR_CUDA_SPACE {

// The threads of the largest block, and the elements of scratch that the reductions of a block ask
// for: one for each warp.
constexpr int kBlockThreadsMax = 1024;
constexpr int kBlockScratch = kBlockThreadsMax / kWarp;

__device__ inline float Infinity() { return __int_as_float(0x7f800000); }

// NaN if one of the two is NaN.
__device__ inline float MaxOrNaN(float a, float b) { return a > b || a != a ? a : b; }

struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct LargerOrNaN {
  __device__ float operator()(float a, float b) const { return MaxOrNaN(a, b); }
};
struct Smaller {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

// Combines x over the threads of a warp; every thread gets the result. All of them must call.
template <typename T, typename Combine>
__device__ inline T WarpReduce(T x, Combine combine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

// Combines x over the threads of a block of one axis and whole warps; every thread gets the result.
// All of them must call. `scratch` is shared memory of kBlockScratch elements, which may be used
// again at once.
template <typename T, typename Combine>
__device__ inline T BlockReduce(T x, T* scratch, Combine combine) {
  x = WarpReduce(x, combine);
  const int num_warps = static_cast<int>(blockDim.x) / kWarp;
  if (num_warps == 1) return x;
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = scratch[0];
  for (int warp = 1; warp < num_warps; ++warp) x = combine(x, scratch[warp]);
  __syncthreads();
  return x;
}

__device__ inline float BlockSum(float x, float* scratch) {
  return BlockReduce(x, scratch, Plus());
}
__device__ inline float BlockMax(float x, float* scratch) {
  return BlockReduce(x, scratch, LargerOrNaN());
}

template <typename T>
using Vector = Pack<T, kPackSize<T>>;

template <typename T>
__device__ inline Vector<T> LoadVector(const T* at) {
  return *reinterpret_cast<const Vector<T>*>(at);
}
template <typename T>
__device__ inline void StoreVector(T* at, const Vector<T>& vector) {
  StoreWhole(at, vector);
}

// Splits the elements [0, n) of a row between `lanes` threads, of which this is number `lane`, and
// calls vector(first) for kPackSize<T> elements from `first` on that one access may load, and
// single(i) for each other element. Rows at the same distance from a multiple of 16 bytes are split
// alike.
template <typename T, typename Vectors, typename Singles>
__device__ inline void ForRow(const T* row, int64_t n, int lane, int lanes, Vectors vector,
                              Singles single) {
  constexpr int kPack = kPackSize<T>;
  const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row) / sizeof(T) % kPack);
  const int64_t head = past == 0 ? 0 : (kPack - past < n ? kPack - past : n);
  const int64_t tail = head + (n - head) / kPack * kPack;
  if (lane < head) single(static_cast<int64_t>(lane));
  for (int64_t first = head + static_cast<int64_t>(lane) * kPack; first < tail;
       first += static_cast<int64_t>(lanes) * kPack) {
    vector(first);
  }
  if (lane < n - tail) single(tail + lane);
}

// Returns how many threads share a row of n elements of which each access takes `per_access`: whole
// warps, at most `most`.
inline int ThreadsOfRow(int64_t n, int per_access, int most) {
  const int64_t accesses = (n + per_access - 1) / per_access;
  const int64_t threads = (accesses + kWarp - 1) / kWarp * kWarp;
  return static_cast<int>(threads < kWarp ? kWarp : threads > most ? most : threads);
}

// Returns the blocks of a grid for `items`, of which each block takes `per_block` or, if they are
// too many for a grid, more.
inline unsigned NumBlocks(int64_t items, int64_t per_block) {
  constexpr int64_t kGridMax = (int64_t{1} << 31) - 1;
  const int64_t blocks = (items + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < kGridMax ? blocks : kGridMax);
}

// The number of this thread in the grid, and the threads of the grid, where both have one axis.
__device__ inline int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t NumThreads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// a / b and a % b, in 32 bits where both numbers have no more. Precondition: a >= 0, b > 0.
struct Quotient {
  int64_t quotient, remainder;
};
__device__ inline Quotient Divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) {
    const uint32_t quotient = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    return {quotient, static_cast<uint32_t>(a) - quotient * static_cast<uint32_t>(b)};
  }
  return {a / b, a % b};
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
