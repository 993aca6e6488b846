#include "ops/kernels/cuda/constant.h"

#include "ops/kernels/cuda/elementwise.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

__device__ inline void Put(float* to, float value) { Store(to, value); }
__device__ inline void Put(Bf16* to, float value) { Store(to, value); }
__device__ inline void Put(F16* to, float value) { Store(to, value); }
__device__ inline void Put(int32_t* to, float value) { *to = static_cast<int32_t>(value); }
__device__ inline void Put(uint8_t* to, float value) { *to = value != 0 ? 1 : 0; }

template <typename T>
__global__ void ConstantKernel(float value, T* y, int64_t count) {
  constexpr int kPack = kPackSize<T>;
  Pack<T, kPack> pack;
  for (int i = 0; i < kPack; ++i) Put(&pack.at[i], value);
  StorePack<kPack>(y, GridThread() * kPack, count, pack);
}

template <typename T>
void LaunchOf(const ConstantWork& work, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(work.count, kPackSize<T>);
  if (blocks == 0) return;
  Launch(stream, &ConstantKernel<T>, dim3(blocks), dim3(kElementThreads), 0, work.value,
         static_cast<T*>(work.y), work.count);
}

}  // namespace

void LaunchConstant(const ConstantWork& work, device::CudaStream stream) {
  WithStored(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
