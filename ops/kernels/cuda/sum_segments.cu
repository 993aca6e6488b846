#include "ops/kernels/cuda/sum_segments.h"

#include "ops/kernels/cuda/block_reduce.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

// A block sums 32 columns; each of its warps takes every 8th segment.
constexpr int kWarps = 8;

template <typename T>
__global__ void SumSegmentsKernel(SumSegmentsWork work) {
  WEIR_SHARED(float, sums);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  T* y = static_cast<T*>(work.y);
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kWarp; first < work.n;
       first += static_cast<int64_t>(gridDim.x) * kWarp) {
    const int64_t i = first + lane;
    float sum = 0;
    if (i < work.n) {
      for (int64_t segment = warp; segment < work.segments; segment += kWarps)
        sum += work.partials[segment * work.stride + i];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp == 0 && i < work.n) {
      for (int other = 1; other < kWarps; ++other) sum += sums[other * kWarp + lane];
      Store(&y[i], sum);
    }
    __syncthreads();
  }
}

}  // namespace

void LaunchSumSegments(const SumSegmentsWork& work, device::CudaStream stream) {
  if (work.n == 0) return;
  WithReal(work.dtype, [&]<typename T>(T*) {
    Launch(stream, &SumSegmentsKernel<T>, dim3(NumBlocks(work.n, kWarp)), dim3(kWarps * kWarp),
           kWarps * kWarp * sizeof(float), work);
  });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
