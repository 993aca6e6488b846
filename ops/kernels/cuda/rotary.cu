#include "ops/kernels/cuda/rotary.h"

#include "ops/kernels/cuda/elementwise.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

// Writes the table in double precision.
__global__ void RotaryTableKernel(RotaryWork work) {
  const int64_t at = GridThread(), entries = work.rows * work.half;
  if (at >= entries) return;
  const double pair = static_cast<double>(at % work.half);
  const double frequency = pow(work.base, -pair / static_cast<double>(work.half));
  const int64_t row = at / work.half;
  const int64_t position =
      work.positions == nullptr ? work.first_position + row : work.positions[row];
  const double angle = static_cast<double>(position) * frequency;
  work.table[at] = static_cast<float>(cos(angle));
  work.table[entries + at] = static_cast<float>(work.direction * sin(angle));
}

// A thread turns N neighbouring pairs of one head.
template <typename T, int N, typename Index>
__global__ void RotaryKernel(RotaryWork work, const T* x, T* y) {
  const int64_t packs = work.batch * work.sequence * work.num_heads * (work.half / N);
  const int64_t pack = GridThread();
  if (pack >= packs) return;
  const Index packs_per_head = static_cast<Index>(work.half / N);
  const Index head = static_cast<Index>(pack) / packs_per_head;
  const int64_t pair = static_cast<int64_t>(static_cast<Index>(pack) % packs_per_head) * N;
  const int64_t row = head / static_cast<Index>(work.num_heads) % static_cast<Index>(work.rows);
  const int64_t at = static_cast<int64_t>(head) * 2 * work.half + pair;
  const int64_t entries = work.rows * work.half, entry = row * work.half + pair;
  const auto a = LoadPack<N>(x + at, 0, N), b = LoadPack<N>(x + at + work.half, 0, N);
  const auto c = LoadPack<N>(work.table + entry, 0, N);
  const auto s = LoadPack<N>(work.table + entries + entry, 0, N);
  Pack<T, N> turned_a, turned_b;
  for (int i = 0; i < N; ++i) {
    const float real = ToFloat(a.at[i]), imaginary = ToFloat(b.at[i]);
    Store(&turned_a.at[i], real * c.at[i] - imaginary * s.at[i]);
    Store(&turned_b.at[i], real * s.at[i] + imaginary * c.at[i]);
  }
  StorePack<N>(y + at, 0, N, turned_a);
  StorePack<N>(y + at + work.half, 0, N, turned_b);
}

template <typename T, int N>
void LaunchPacks(const RotaryWork& work, device::CudaStream stream) {
  const int64_t packs = work.batch * work.sequence * work.num_heads * (work.half / N);
  const bool is_small = packs <= 0x7fffffffll;
  Launch(stream, is_small ? &RotaryKernel<T, N, uint32_t> : &RotaryKernel<T, N, uint64_t>,
         dim3(ElementBlocks(packs, 1)), dim3(kElementThreads), 0, work,
         static_cast<const T*>(work.x), static_cast<T*>(work.y));
}

template <typename T>
void LaunchOf(const RotaryWork& work, device::CudaStream stream) {
  work.half % kPackSize<T> == 0 ? LaunchPacks<T, kPackSize<T>>(work, stream)
                                : LaunchPacks<T, 1>(work, stream);
}

}  // namespace

void LaunchRotary(const RotaryWork& work, device::CudaStream stream) {
  if (work.batch * work.sequence * work.num_heads * work.half == 0) return;
  Launch(stream, &RotaryTableKernel, dim3(ElementBlocks(work.rows * work.half, 1)),
         dim3(kElementThreads), 0, work);
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
