#include "ops/kernels/cuda/dropout.h"

#include "ops/kernels/cuda/elementwise.cuh"
#include "runtime/base/random.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

// Returns the number, in the whole tensor, of element `at` of the shard.
__device__ inline uint64_t NumberOf(const DropoutWork& work, int64_t at) {
  if (work.num_outer == 0) return static_cast<uint64_t>(work.first + at);
  int64_t rest = at / work.stretch;
  int64_t number = work.first + at % work.stretch;
  for (int i = 0; i < work.num_outer; ++i) {
    number += rest % work.outer_sizes[i] * work.outer_strides[i];
    rest /= work.outer_sizes[i];
  }
  return static_cast<uint64_t>(number);
}

template <typename T>
__device__ inline void Drop(const DropoutRule& rule, uint32_t word, T* x) {
  Store(x, (word >> 8) < rule.threshold ? 0.0f : ToFloat(*x) * rule.factor);
}

// Four words serve four elements, whose numbers begin with a multiple of 4.
template <typename T>
__global__ void DropPacksKernel(DropoutWork work, const T* x, T* y) {
  constexpr int kPack = kPackSize<T>;
  static_assert(kPack % 4 == 0);
  const int64_t first = GridThread() * kPack;
  if (first >= work.count) return;
  auto pack = LoadPack<kPack>(x, first, work.count);
  const uint64_t number = NumberOf(work, first);
  for (int i = 0; i < kPack; i += 4) {
    uint32_t words[4];
    WriteRandomBits(work.rule.key, (number + i) >> 2, words);
    for (int j = 0; j < 4; ++j) Drop(work.rule, words[j], &pack.at[i + j]);
  }
  StorePack<kPack>(y, first, work.count, pack);
}

template <typename T>
__global__ void DropElementsKernel(DropoutWork work, const T* x, T* y) {
  const int64_t at = GridThread();
  if (at >= work.count) return;
  const uint64_t number = NumberOf(work, at);
  uint32_t words[4];
  WriteRandomBits(work.rule.key, number >> 2, words);
  const uint32_t low = (number & 1) == 0 ? words[0] : words[1];
  const uint32_t high = (number & 1) == 0 ? words[2] : words[3];
  T element = x[at];
  Drop(work.rule, (number & 2) == 0 ? low : high, &element);
  y[at] = element;
}

// Returns whether each pack of n elements lies in one stretch and begins with a multiple of 4.
bool Packs(const DropoutWork& work, int64_t n) {
  bool packs = work.first % 4 == 0 && (work.num_outer == 0 || work.stretch % n == 0);
  for (int i = 0; i < work.num_outer; ++i) packs = packs && work.outer_strides[i] % 4 == 0;
  return packs;
}

template <typename T>
void LaunchOf(const DropoutWork& work, device::CudaStream stream) {
  if (work.count == 0) return;
  const T* x = static_cast<const T*>(work.x);
  T* y = static_cast<T*>(work.y);
  if (Packs(work, kPackSize<T>)) {
    Launch(stream, &DropPacksKernel<T>, dim3(ElementBlocks(work.count, kPackSize<T>)),
           dim3(kElementThreads), 0, work, x, y);
  } else {
    Launch(stream, &DropElementsKernel<T>, dim3(ElementBlocks(work.count, 1)),
           dim3(kElementThreads), 0, work, x, y);
  }
}

}  // namespace

void LaunchDropout(const DropoutWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
