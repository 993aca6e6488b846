#include "ops/kernels/cuda/updates.h"

#include "ops/kernels/cuda/elementwise.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kElementsOfThread = 4;

// Neighbouring threads take neighbouring elements.
template <typename Map>
__global__ void UpdateKernel(Map map, int64_t n) {
  typename Map::Now now;
  if (!map.Begin(&now)) return;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * kElementThreads * kElementsOfThread + threadIdx.x;
  for (int k = 0; k < kElementsOfThread; ++k) {
    const int64_t i = first + static_cast<int64_t>(k) * kElementThreads;
    if (i < n) map(now, i);
  }
}

}  // namespace

template <typename Map>
void LaunchUpdate(const Map& map, int64_t n, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(n, kElementsOfThread);
  if (blocks == 0) return;
  Launch(stream, &UpdateKernel<Map>, dim3(blocks), dim3(kElementThreads), 0, map, n);
}

template void LaunchUpdate(const LionMap&, int64_t, device::CudaStream);
template void LaunchUpdate(const AdamDirectionMap&, int64_t, device::CudaStream);
template void LaunchUpdate(const MomentumDirectionMap&, int64_t, device::CudaStream);
template void LaunchUpdate(const MomentOfSquaresMap&, int64_t, device::CudaStream);
template void LaunchUpdate(const WeightAverageMap&, int64_t, device::CudaStream);
template void LaunchUpdate(const WeightStepMap&, int64_t, device::CudaStream);
template void LaunchUpdate(const UnitNormMap&, int64_t, device::CudaStream);
template void LaunchUpdate(const AdafactorDirectionMap&, int64_t, device::CudaStream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
