#include "ops/kernels/cuda/arithmetic.h"

#include <type_traits>

#include "ops/kernels/cuda/elementwise.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

template <typename T>
__global__ void ScaleKernel(float factor, const T* x, T* y, int64_t count) {
  constexpr int kPack = kPackSize<T>;
  const int64_t first = GridThread() * kPack;
  auto pack = LoadPack<kPack>(x, first, count);
  for (int i = 0; i < kPack; ++i) Store(&pack.at[i], ToFloat(pack.at[i]) * factor);
  StorePack<kPack>(y, first, count, pack);
}

// A bool is a byte.
__device__ inline bool IsTrue(float x) { return x != 0; }
__device__ inline bool IsTrue(Bf16 x) { return ToFloat(x) != 0; }
__device__ inline bool IsTrue(F16 x) { return ToFloat(x) != 0; }
__device__ inline bool IsTrue(int32_t x) { return x != 0; }

__device__ inline float Number(float x) { return x; }
__device__ inline float Number(Bf16 x) { return ToFloat(x); }
__device__ inline float Number(F16 x) { return ToFloat(x); }
__device__ inline float Number(int32_t x) { return static_cast<float>(x); }
__device__ inline float Number(uint8_t x) { return static_cast<float>(x); }

__device__ inline int32_t Integer(float x) {
  if (x != x) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  if (x < -2147483648.0f) return -2147483647 - 1;
  return static_cast<int32_t>(x);
}
__device__ inline int32_t Integer(Bf16 x) { return Integer(ToFloat(x)); }
__device__ inline int32_t Integer(F16 x) { return Integer(ToFloat(x)); }
__device__ inline int32_t Integer(uint8_t x) { return x; }

template <typename From>
__device__ inline void CastTo(float* to, From x) {
  *to = Number(x);
}
template <typename From>
__device__ inline void CastTo(Bf16* to, From x) {
  Store(to, Number(x));
}
template <typename From>
__device__ inline void CastTo(F16* to, From x) {
  Store(to, Number(x));
}
template <typename From>
__device__ inline void CastTo(int32_t* to, From x) {
  *to = Integer(x);
}
template <typename From>
__device__ inline void CastTo(uint8_t* to, From x) {
  *to = IsTrue(x) ? 1 : 0;
}

template <typename From, typename To>
__global__ void CastKernel(const From* x, To* y, int64_t count) {
  constexpr int kPack = kPackSize<From> < kPackSize<To> ? kPackSize<To> : kPackSize<From>;
  const int64_t first = GridThread() * kPack;
  const auto from = LoadPack<kPack>(x, first, count);
  Pack<To, kPack> to;
  for (int i = 0; i < kPack; ++i) CastTo(&to.at[i], from.at[i]);
  StorePack<kPack>(y, first, count, to);
}

template <typename T>
__global__ void CopyKernel(const T* x, T* y, int64_t count) {
  constexpr int kPack = kPackSize<T>;
  const int64_t first = GridThread() * kPack;
  StorePack<kPack>(y, first, count, LoadPack<kPack>(x, first, count));
}

template <typename T>
__global__ void AccumulateKernel(const T* g, float* sum, int64_t count) {
  constexpr int kPack = kPackSize<T>;
  const int64_t first = GridThread() * kPack;
  auto total = LoadPack<kPack>(sum, first, count);
  const auto term = LoadPack<kPack>(g, first, count);
  for (int i = 0; i < kPack; ++i) total.at[i] += ToFloat(term.at[i]);
  StorePack<kPack>(sum, first, count, total);
}

constexpr int kPacksOfThread = 4;

// A block takes kElementThreads * kPacksOfThread packs of one tensor.
template <typename From, typename To, bool kAdds>
__global__ void ManyKernel(ManyWork work) {
  constexpr int kPack = kPackSize<From> < kPackSize<To> ? kPackSize<To> : kPackSize<From>;
  int t = 0, end = work.num_tensors;
  while (end - t > 1) {
    const int middle = (t + end) / 2;
    if (work.tensors[middle].first_block <= blockIdx.x) {
      t = middle;
    } else {
      end = middle;
    }
  }
  const ManyWork::Tensor& tensor = work.tensors[t];
  const auto* const x = static_cast<const From*>(tensor.x);
  auto* const y = static_cast<To*>(tensor.y);
  const int64_t block = blockIdx.x - tensor.first_block;
  for (int p = 0; p < kPacksOfThread; ++p) {
    const int64_t first = ((block * kPacksOfThread + p) * kElementThreads + threadIdx.x) * kPack;
    if (first >= tensor.count) return;
    const auto from = LoadPack<kPack>(x, first, tensor.count);
    Pack<To, kPack> to = {};
    if constexpr (kAdds) {
      to = LoadPack<kPack>(y, first, tensor.count);
      for (int i = 0; i < kPack; ++i) Store(&to.at[i], ToFloat(to.at[i]) + ToFloat(from.at[i]));
    } else {
      for (int i = 0; i < kPack; ++i) CastTo(&to.at[i], from.at[i]);
    }
    StorePack<kPack>(y, first, tensor.count, to);
  }
}

template <typename From, typename To, bool kAdds>
void LaunchManyOf(ManyWork& work, device::CudaStream stream) {
  constexpr int kPack = kPackSize<From> < kPackSize<To> ? kPackSize<To> : kPackSize<From>;
  constexpr int64_t kOfBlock = int64_t{kElementThreads} * kPacksOfThread * kPack;
  int64_t blocks = 0;
  int kept = 0;
  for (int t = 0; t < work.num_tensors; ++t) {
    if (work.tensors[t].count == 0) continue;
    work.tensors[kept] = work.tensors[t];
    work.tensors[kept].first_block = blocks;
    blocks += (work.tensors[kept++].count + kOfBlock - 1) / kOfBlock;
  }
  work.num_tensors = kept;
  if (blocks == 0) return;
  Launch(stream, &ManyKernel<From, To, kAdds>, dim3(static_cast<unsigned>(blocks)),
         dim3(kElementThreads), 0, work);
}

template <typename From>
void LaunchManyFrom(ManyWork& work, device::CudaStream stream) {
  if (work.adds) return LaunchManyOf<From, float, true>(work, stream);
  WithReal(work.to, [&]<typename To>(To*) { LaunchManyOf<From, To, false>(work, stream); });
}

template <typename T>
void LaunchScaleOf(const ScaleWork& work, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(work.count, kPackSize<T>);
  if (blocks == 0) return;
  Launch(stream, &ScaleKernel<T>, dim3(blocks), dim3(kElementThreads), 0, work.factor,
         static_cast<const T*>(work.x), static_cast<T*>(work.y), work.count);
}

template <typename From, typename To>
void LaunchCastOf(const CastWork& work, device::CudaStream stream) {
  if constexpr (std::is_same_v<From, To>) {
    Launch(stream, &CopyKernel<To>, dim3(ElementBlocks(work.count, kPackSize<To>)),
           dim3(kElementThreads), 0, static_cast<const From*>(work.x), static_cast<To*>(work.y),
           work.count);
  } else {
    constexpr int kPack = kPackSize<From> < kPackSize<To> ? kPackSize<To> : kPackSize<From>;
    Launch(stream, &CastKernel<From, To>, dim3(ElementBlocks(work.count, kPack)),
           dim3(kElementThreads), 0, static_cast<const From*>(work.x), static_cast<To*>(work.y),
           work.count);
  }
}

template <typename T>
void LaunchAccumulateOf(const AccumulateWork& work, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(work.count, kPackSize<T>);
  if (blocks == 0) return;
  Launch(stream, &AccumulateKernel<T>, dim3(blocks), dim3(kElementThreads), 0,
         static_cast<const T*>(work.g), work.sum, work.count);
}

}  // namespace

void LaunchScale(const ScaleWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchScaleOf<T>(work, stream); });
}

void LaunchCast(const CastWork& work, device::CudaStream stream) {
  if (work.count == 0 || (work.from == work.to && work.x == work.y)) return;
  WithStored(work.from, [&]<typename From>(From*) {
    WithStored(work.to, [&]<typename To>(To*) { LaunchCastOf<From, To>(work, stream); });
  });
}

void LaunchAccumulate(const AccumulateWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchAccumulateOf<T>(work, stream); });
}

void LaunchMany(ManyWork work, device::CudaStream stream) {
  WithReal(work.from, [&]<typename T>(T*) { LaunchManyFrom<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
