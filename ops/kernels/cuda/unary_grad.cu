#include "ops/kernels/cuda/elementwise.cuh"
#include "ops/kernels/cuda/unary.h"
#include "ops/kernels/cuda/unary_functions.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

template <typename T, typename Code>
__global__ void UnaryGradKernel(Code code, const T* x, const T* dy, T* dx, int64_t count) {
  constexpr int kPack = kPackSize<T>;
  const int64_t first = GridThread() * kPack;
  const auto px = LoadPack<kPack>(x, first, count);
  const auto pg = LoadPack<kPack>(dy, first, count);
  Pack<T, kPack> out;
  for (int i = 0; i < kPack; ++i)
    Store(&out.at[i], code.Grad(ToFloat(px.at[i]), ToFloat(pg.at[i])));
  StorePack<kPack>(dx, first, count, out);
}

template <typename T>
void LaunchOf(const UnaryWork& work, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(work.count, kPackSize<T>);
  if (blocks == 0) return;
  WithUnary(work.function, work.constants, [&](auto code) {
    using Code = decltype(code);
    if constexpr (requires { code.Grad(0.0f, 0.0f); }) {
      Launch(stream, &UnaryGradKernel<T, Code>, dim3(blocks), dim3(kElementThreads), 0, code,
             static_cast<const T*>(work.x), static_cast<const T*>(work.dy), static_cast<T*>(work.y),
             work.count);
    }
  });
}

}  // namespace

void LaunchUnaryGrad(const UnaryWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
