#include "ops/kernels/cuda/unary.h"

#include "ops/kernels/cuda/elementwise.cuh"
#include "ops/kernels/cuda/unary_functions.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

template <typename T, typename Code>
__global__ void UnaryKernel(Code code, const T* x, T* y, int64_t count) {
  constexpr int kPack = kPackSize<T>;
  const int64_t first = GridThread() * kPack;
  const auto px = LoadPack<kPack>(x, first, count);
  Pack<T, kPack> py;
  for (int i = 0; i < kPack; ++i) Store(&py.at[i], code.Value(ToFloat(px.at[i])));
  StorePack<kPack>(y, first, count, py);
}

template <typename T>
void LaunchOf(const UnaryWork& work, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(work.count, kPackSize<T>);
  if (blocks == 0) return;
  WithUnary(work.function, work.constants, [&](auto code) {
    Launch(stream, &UnaryKernel<T, decltype(code)>, dim3(blocks), dim3(kElementThreads), 0, code,
           static_cast<const T*>(work.x), static_cast<T*>(work.y), work.count);
  });
}

}  // namespace

void LaunchUnary(const UnaryWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
