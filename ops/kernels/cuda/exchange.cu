#include "ops/kernels/cuda/exchange.h"

#include <type_traits>

#include "ops/kernels/cuda/elementwise.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

// These are the most levels of the tree of a segment's sources: a segment has fewer than 2^levels
// sources, or at most one if there are no levels.
constexpr int kLevelsInParameter = 4;
constexpr int kLevelsInMemory = 15;
static_assert(ExchangeWork::kSourcesMax < 1 << kLevelsInParameter);

template <typename T, ExchangeSourcesIn kSources>
constexpr int kExchangePack = ExchangePack(sizeof(T), kSources);

template <typename Index>
__device__ inline int64_t OffsetIn(const ExchangeWalk& walk, int64_t element) {
  const Index run = static_cast<Index>(walk.run);
  Index rest = static_cast<Index>(element) / run;
  int64_t offset = walk.first + static_cast<int64_t>(static_cast<Index>(element) % run);
  for (int axis = walk.num_axes - 1; axis >= 0; --axis) {
    const Index size = static_cast<Index>(walk.sizes[axis]);
    offset += static_cast<int64_t>(axis > 0 ? rest % size : rest) * walk.strides[axis];
    rest = axis > 0 ? rest / size : 0;
  }
  return offset;
}

__device__ inline int64_t Offset(const ExchangeWalk& walk, int64_t element) {
  if (walk.num_axes == 0) return walk.first + element;
  return walk.is_small != 0 ? OffsetIn<uint32_t>(walk, element) : OffsetIn<uint64_t>(walk, element);
}

template <typename T, int N>
__device__ inline Pack<T, N> LoadAt(const ExchangeWalk& walk, int64_t element) {
  return LoadPack<N>(static_cast<const T*>(walk.base) + Offset(walk, element), 0, N);
}

// Elements are combined as numbers of type N; N of real elements is f32.
template <typename T>
struct Combined {
  using Type = float;
};
template <>
struct Combined<int32_t> {
  using Type = int32_t;
};

__device__ inline float Combine(Combiner combiner, float a, float b) {
  if (combiner == Combiner::kSum) return a + b;
  return b > a || b != b ? b : a;
}
__device__ inline int32_t Combine(Combiner combiner, int32_t a, int32_t b) {
  // Sums wrap, as unsigned arithmetic does.
  if (combiner == Combiner::kSum)
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  return a > b ? a : b;
}

__device__ inline float Number(float x) { return x; }
__device__ inline float Number(Bf16 x) { return ToFloat(x); }
__device__ inline float Number(F16 x) { return ToFloat(x); }
__device__ inline int32_t Number(int32_t x) { return x; }

__device__ inline void Put(float* to, float x) { *to = x; }
__device__ inline void Put(Bf16* to, float x) { Store(to, x); }
__device__ inline void Put(F16* to, float x) { Store(to, x); }
__device__ inline void Put(int32_t* to, int32_t x) { *to = x; }

__device__ inline void PutLowest(float* to) { *to = -HUGE_VALF; }
__device__ inline void PutLowest(Bf16* to) { to->bits = 0xff80; }
__device__ inline void PutLowest(F16* to) { to->bits = 0xfc00; }
__device__ inline void PutLowest(int32_t* to) { *to = -2147483647 - 1; }
__device__ inline void PutLowest(uint8_t* to) { *to = 0; }

template <typename Value, int N>
struct Values {
  Value at[N];
};

template <typename Value, int N>
__device__ inline Values<Value, N> Combine(Combiner combiner, const Values<Value, N>& a,
                                           const Values<Value, N>& b) {
  Values<Value, N> result;
  for (int i = 0; i < N; ++i) result.at[i] = Combine(combiner, a.at[i], b.at[i]);
  return result;
}

// Combines sources in pairs as they come: partial[l] holds the result of the last 2^l sources whose
// number has bit l. Every index is a constant, so the results stay in registers.
template <typename Value, int N, int kLevels>
class Tree {
 public:
  __device__ void Add(Combiner combiner, int64_t index, const Values<Value, N>& leaf) {
    AddAt<0>(combiner, index, leaf);
  }
  __device__ Values<Value, N> Result(Combiner combiner, int64_t count) const {
    Values<Value, N> result = {};
    ResultFrom<0>(combiner, count, false, &result);
    return result;
  }

 private:
  template <int kLevel>
  __device__ void AddAt(Combiner combiner, int64_t index, const Values<Value, N>& right) {
    if constexpr (kLevel < kLevels) {
      if ((index >> kLevel & 1) == 0) {
        partial_[kLevel] = right;
      } else {
        AddAt<kLevel + 1>(combiner, index, Combine(combiner, partial_[kLevel], right));
      }
    }
  }
  // The lower levels hold the later sources.
  template <int kLevel>
  __device__ void ResultFrom(Combiner combiner, int64_t count, bool has_right,
                             Values<Value, N>* result) const {
    if constexpr (kLevel < kLevels) {
      const bool has_left = (count >> kLevel & 1) != 0;
      if (has_left && has_right) {
        *result = Combine(combiner, partial_[kLevel], *result);
      } else if (has_left) {
        *result = partial_[kLevel];
      }
      ResultFrom<kLevel + 1>(combiner, count, has_left || has_right, result);
    }
  }

  Values<Value, N> partial_[kLevels] = {};
};

// Computes N elements of the segment.
template <typename T, int N, int kLevels, ExchangeSourcesIn kSources>
__device__ inline Pack<T, N> Compute(const ExchangeWork& work, const ExchangeSegment& segment,
                                     int64_t element) {
  Pack<T, N> pack = {};
  if (segment.num_sources == 0) {
    if (segment.combiner == Combiner::kMax) {
      for (int i = 0; i < N; ++i) PutLowest(&pack.at[i]);
    }
    return pack;
  }
  if constexpr (kSources == ExchangeSourcesIn::kParameter) {
    if (segment.num_sources == 1) return LoadAt<T, N>(work.sources[segment.first_source], element);
  }
  if constexpr (kLevels > 0) {
    using Value = typename Combined<T>::Type;
    Tree<Value, N, kLevels> tree;
    for (int64_t s = 0; s < segment.num_sources; ++s) {
      const int64_t at = segment.first_source + s;
      if constexpr (kSources == ExchangeSourcesIn::kMemory) {
        pack = LoadAt<T, N>(work.memory[at], element);
      } else {
        pack = LoadAt<T, N>(work.sources[at], element);
      }
      Values<Value, N> leaf;
      for (int i = 0; i < N; ++i) leaf.at[i] = Number(pack.at[i]);
      tree.Add(segment.combiner, s, leaf);
    }
    const Values<Value, N> result = tree.Result(segment.combiner, segment.num_sources);
    for (int i = 0; i < N; ++i) Put(&pack.at[i], result.at[i]);
  }
  return pack;
}

template <typename T, int N, int kLevels, ExchangeSourcesIn kSources>
__device__ inline void Fill(const ExchangeWork& work, const ExchangeSegment& segment) {
  const int64_t thread =
      static_cast<int64_t>(blockIdx.x - segment.first_block) * blockDim.x + threadIdx.x;
  const int64_t element = segment.first + thread * N;
  if (element >= segment.last) return;
  const Pack<T, N> pack = Compute<T, N, kLevels, kSources>(work, segment, element);
  StorePack<N>(static_cast<T*>(segment.target.base) + Offset(segment.target, element), 0, N, pack);
}

template <typename T, int kLevels, ExchangeSourcesIn kSources>
__global__ void ExchangeKernel(const ExchangeWork work) {
  int s = 0;
  while (s + 1 < work.num_segments && blockIdx.x >= work.segments[s + 1].first_block) ++s;
  if (work.segments[s].packs) {
    Fill<T, kExchangePack<T, kSources>, kLevels, kSources>(work, work.segments[s]);
  } else {
    Fill<T, 1, kLevels, kSources>(work, work.segments[s]);
  }
}

__global__ void ExchangeSourcesKernel(const ExchangeSources work) {
  const int at = static_cast<int>(threadIdx.x);
  if (at < work.count) work.to[at] = work.sources[at];
}

template <typename T, int kLevels, ExchangeSourcesIn kSources>
void LaunchOf(const ExchangeWork& work, device::CudaStream stream) {
  Launch(stream, &ExchangeKernel<T, kLevels, kSources>, dim3(work.num_blocks),
         dim3(kElementThreads), 0, work);
}

template <typename T>
void LaunchTyped(const ExchangeWork& work, device::CudaStream stream) {
  if (work.memory != nullptr)
    return LaunchOf<T, kLevelsInMemory, ExchangeSourcesIn::kMemory>(work, stream);
  bool combines = false;
  for (int i = 0; i < work.num_segments; ++i)
    combines = combines || work.segments[i].num_sources > 1;
  combines ? LaunchOf<T, kLevelsInParameter, ExchangeSourcesIn::kParameter>(work, stream)
           : LaunchOf<T, 0, ExchangeSourcesIn::kParameter>(work, stream);
}

}  // namespace

uint32_t ExchangeBlocks(int64_t count, int64_t at_once) { return ElementBlocks(count, at_once); }

void LaunchExchange(const ExchangeWork& work, device::CudaStream stream) {
  if (work.num_blocks == 0) return;
  WithStored(work.dtype, [&]<typename T>(T*) {
    if constexpr (std::is_same_v<T, uint8_t>) {
      LaunchOf<T, 0, ExchangeSourcesIn::kParameter>(work, stream);
    } else {
      LaunchTyped<T>(work, stream);
    }
  });
}

void LaunchExchangeSources(const ExchangeSources& work, device::CudaStream stream) {
  Launch(stream, &ExchangeSourcesKernel, dim3(1), dim3(kWarp), 0, work);
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
