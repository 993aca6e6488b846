// top_k: a block has a column and finds its elements one after the other, each the first behind the
// one before; the column comes from a cache after the first time. cumsum: a thread has a column
// where columns lie side by side, else a block has one.
#include "ops/kernels/cuda/selection.h"

#include "ops/kernels/cuda/block_reduce.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 256;

struct Larger {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// Returns a number that orders elements: the larger number comes first. It is neither 0 nor the
// largest number. The upper half orders values, the lower half places.
__device__ inline uint64_t OrderOf(float value, uint32_t place, bool largest) {
  const uint32_t bits = value == 0 ? 0u : __float_as_uint(value);
  uint32_t order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  if (value != value) order = 0xfffffffeu;
  if (!largest) order = ~order;
  return static_cast<uint64_t>(order) << 32 | static_cast<uint32_t>(~place);
}

template <typename T>
__global__ void TopKKernel(TopKWork work) {
  WEIR_SHARED(uint64_t, scratch);
  for (int64_t column = blockIdx.x; column < work.outer * work.inner; column += gridDim.x) {
    const Quotient place = Divide(column, work.inner);
    const T* x =
        static_cast<const T*>(work.x) + place.quotient * work.n * work.inner + place.remainder;
    const int64_t to = place.quotient * work.k * work.inner + place.remainder;
    uint64_t before = ~uint64_t{0};
    for (int64_t found = 0; found < work.k; ++found) {
      uint64_t first = 0;
      for (int64_t i = threadIdx.x; i < work.n; i += blockDim.x) {
        const uint64_t order =
            OrderOf(ToFloat(x[i * work.inner]), static_cast<uint32_t>(i), work.largest);
        if (order < before && order > first) first = order;
      }
      before = BlockReduce(first, scratch, Larger());
      if (threadIdx.x != 0) continue;
      const uint32_t i = ~static_cast<uint32_t>(before);
      const int64_t at = to + found * work.inner;
      if (work.values != nullptr) static_cast<T*>(work.values)[at] = x[i * work.inner];
      if (work.indices != nullptr) work.indices[at] = static_cast<int32_t>(i);
    }
  }
}

// Returns the place of the i-th element that the sum meets.
__device__ inline int64_t PlaceOf(const CumsumWork& work, int64_t i) {
  return (work.reverse ? work.n - 1 - i : i) * work.inner;
}

template <typename T>
__global__ void ColumnSumsKernel(CumsumWork work) {
  for (int64_t column = GlobalThread(); column < work.outer * work.inner; column += NumThreads()) {
    const Quotient place = Divide(column, work.inner);
    const int64_t first = place.quotient * work.n * work.inner + place.remainder;
    const T* x = static_cast<const T*>(work.x) + first;
    T* y = static_cast<T*>(work.y) + first;
    float sum = 0;
    for (int64_t i = 0; i < work.n; ++i) {
      const int64_t at = PlaceOf(work, i);
      const float with = sum + ToFloat(x[at]);
      Store(&y[at], work.exclusive ? sum : with);
      sum = with;
    }
  }
}

template <typename T>
__global__ void BlockSumsKernel(CumsumWork work) {
  WEIR_SHARED(float, of_warp);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int num_warps = blockDim.x / kWarp;
  for (int64_t column = blockIdx.x; column < work.outer * work.inner; column += gridDim.x) {
    const Quotient place = Divide(column, work.inner);
    const int64_t first = place.quotient * work.n * work.inner + place.remainder;
    const T* x = static_cast<const T*>(work.x) + first;
    T* y = static_cast<T*>(work.y) + first;
    float before = 0;
    for (int64_t begin = 0; begin < work.n; begin += blockDim.x) {
      const int64_t i = begin + threadIdx.x;
      const int64_t at = i < work.n ? PlaceOf(work, i) : 0;
      const float own = i < work.n ? ToFloat(x[at]) : 0.0f;
      float sum = own;
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const float left = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += left;
      }
      // The sum of the lanes to the left, not `sum - own`, which rounds.
      const float left = __shfl_up_sync(0xffffffffu, sum, 1);
      if (lane == kWarp - 1) of_warp[warp] = sum;
      __syncthreads();
      float before_warp = before;
      for (int other = 0; other < num_warps; ++other) {
        if (other < warp) before_warp += of_warp[other];
        before += of_warp[other];
      }
      if (i < work.n) {
        const float without = lane == 0 ? before_warp : before_warp + left;
        Store(&y[at], work.exclusive ? without : before_warp + sum);
      }
      __syncthreads();
    }
  }
}

template <typename T>
void LaunchCumsumOf(const CumsumWork& work, device::CudaStream stream) {
  const int64_t columns = work.outer * work.inner;
  if (work.inner >= kWarp) {
    Launch(stream, &ColumnSumsKernel<T>, dim3(NumBlocks(columns, kThreads)), dim3(kThreads), 0,
           work);
  } else {
    Launch(stream, &BlockSumsKernel<T>, dim3(NumBlocks(columns, 1)),
           dim3(ThreadsOfRow(work.n, 1, kThreads)), kBlockScratch * sizeof(float), work);
  }
}

}  // namespace

void LaunchTopK(const TopKWork& work, device::CudaStream stream) {
  if (work.outer * work.inner == 0) return;
  WithReal(work.dtype, [&]<typename T>(T*) {
    Launch(stream, &TopKKernel<T>, dim3(NumBlocks(work.outer * work.inner, 1)),
           dim3(ThreadsOfRow(work.n, 1, kThreads)), kBlockScratch * sizeof(uint64_t), work);
  });
}

void LaunchCumsum(const CumsumWork& work, device::CudaStream stream) {
  if (work.outer * work.n * work.inner == 0) return;
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchCumsumOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
