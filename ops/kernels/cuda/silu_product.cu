#include "ops/kernels/cuda/silu_product.h"

#include "ops/kernels/cuda/elementwise.cuh"
#include "ops/kernels/cuda/unary_functions.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

template <typename T>
__global__ void SiluProductKernel(const T* x, const T* b, T* y, T* h, int64_t count) {
  constexpr int kPack = kPackSize<T>;
  const int64_t first = GridThread() * kPack;
  if (first >= count) return;
  const Silu silu{UnaryConstants()};
  const auto px = LoadPack<kPack>(x, first, count), pb = LoadPack<kPack>(b, first, count);
  Pack<T, kPack> py, ph;
  for (int i = 0; i < kPack; ++i) {
    Store(&py.at[i], silu.Value(ToFloat(px.at[i])));
    Store(&ph.at[i], ToFloat(py.at[i]) * ToFloat(pb.at[i]));
  }
  if (y != nullptr) StorePack<kPack>(y, first, count, py);
  StorePack<kPack>(h, first, count, ph);
}

template <typename T>
void LaunchOf(const SiluProductWork& work, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(work.count, kPackSize<T>);
  if (blocks == 0) return;
  Launch(stream, &SiluProductKernel<T>, dim3(blocks), dim3(kElementThreads), 0,
         static_cast<const T*>(work.x), static_cast<const T*>(work.b), static_cast<T*>(work.y),
         static_cast<T*>(work.h), work.count);
}

}  // namespace

void LaunchSiluProduct(const SiluProductWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
