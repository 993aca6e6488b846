#include "ops/kernels/cuda/binary.h"

#include "ops/kernels/cuda/broadcast.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

// A result is NaN if an operand is. Of equal operands (zeros of two signs) the result is a.
__device__ inline float Apply(Binary function, float a, float b) {
  switch (function) {
    case Binary::kAdd: return a + b;
    case Binary::kSub: return a - b;
    case Binary::kMul: return a * b;
    case Binary::kDiv: return a / b;
    case Binary::kMaximum: return b > a || b != b ? b : a;
    case Binary::kMinimum: return b < a || b != b ? b : a;
  }
  return 0;
}

template <typename T, int N>
__global__ void BinaryKernel(Binary function, BroadcastLayout layout, const T* a, const T* b,
                             T* y) {
  const int64_t first = GridThread() * N;
  if (first >= layout.count) return;
  const PackPlace<2> place = Locate<2>(layout, first);
  const auto pa = LoadOperand<N>(a, place.first[0], place.repeats[0], layout.count - first);
  const auto pb = LoadOperand<N>(b, place.first[1], place.repeats[1], layout.count - first);
  Pack<T, N> py;
  for (int i = 0; i < N; ++i)
    Store(&py.at[i], Apply(function, ToFloat(pa.at[i]), ToFloat(pb.at[i])));
  StorePack<N>(y, first, layout.count, py);
}

template <typename T, int N>
void LaunchPacks(const BinaryWork& work, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(work.layout.count, N);
  if (blocks == 0) return;
  Launch(stream, &BinaryKernel<T, N>, dim3(blocks), dim3(kElementThreads), 0, work.function,
         work.layout, static_cast<const T*>(work.a), static_cast<const T*>(work.b),
         static_cast<T*>(work.y));
}

template <typename T>
void LaunchOf(const BinaryWork& work, device::CudaStream stream) {
  work.layout.Packs(kPackSize<T>) ? LaunchPacks<T, kPackSize<T>>(work, stream)
                                  : LaunchPacks<T, 1>(work, stream);
}

}  // namespace

void LaunchBinary(const BinaryWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
