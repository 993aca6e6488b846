#include "ops/kernels/cuda/masks.h"

#include <type_traits>

#include "ops/kernels/cuda/broadcast.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

// Real numbers are compared as f32, others as doubles, which hold them all.
template <typename T>
using Compared =
    std::conditional_t<std::is_same_v<T, int32_t> || std::is_same_v<T, uint8_t>, double, float>;

__device__ inline float Number(float x) { return x; }
__device__ inline float Number(Bf16 x) { return ToFloat(x); }
__device__ inline float Number(F16 x) { return ToFloat(x); }
__device__ inline double Number(int32_t x) { return x; }
__device__ inline double Number(uint8_t x) { return x; }

template <typename N>
__device__ inline bool Holds(Relation relation, N a, N b) {
  switch (relation) {
    case Relation::kEqual: return a == b;
    case Relation::kNotEqual: return a != b;
    case Relation::kLess: return a < b;
    case Relation::kLessEqual: return a <= b;
    case Relation::kGreater: return a > b;
    case Relation::kGreaterEqual: return a >= b;
  }
  return false;
}

template <typename T, int N>
__global__ void CompareKernel(Relation relation, Compared<T> value, BroadcastLayout layout,
                              const T* a, const T* b, uint8_t* y) {
  const int64_t first = GridThread() * N;
  if (first >= layout.count) return;
  const PackPlace<2> place = Locate<2>(layout, first);
  const int64_t count = layout.count - first;
  const auto pa = LoadOperand<N>(a, place.first[0], place.repeats[0], count);
  Pack<T, N> pb = {};
  if (b != nullptr) pb = LoadOperand<N>(b, place.first[1], place.repeats[1], count);
  Pack<uint8_t, N> py;
  for (int i = 0; i < N; ++i) {
    const Compared<T> other = b != nullptr ? Number(pb.at[i]) : value;
    py.at[i] = Holds<Compared<T>>(relation, Number(pa.at[i]), other) ? 1 : 0;
  }
  StorePack<N>(y, first, layout.count, py);
}

__device__ inline bool Joined(Connective connective, bool a, bool b) {
  switch (connective) {
    case Connective::kAnd: return a && b;
    case Connective::kOr: return a || b;
    case Connective::kXor: return a != b;
    case Connective::kNot: return !a;
  }
  return false;
}

template <int N>
__global__ void LogicalKernel(Connective connective, BroadcastLayout layout, const uint8_t* a,
                              const uint8_t* b, uint8_t* y) {
  const int64_t first = GridThread() * N;
  if (first >= layout.count) return;
  const PackPlace<2> place = Locate<2>(layout, first);
  const int64_t count = layout.count - first;
  const auto pa = LoadOperand<N>(a, place.first[0], place.repeats[0], count);
  Pack<uint8_t, N> pb = {};
  if (b != nullptr) pb = LoadOperand<N>(b, place.first[1], place.repeats[1], count);
  Pack<uint8_t, N> py;
  for (int i = 0; i < N; ++i) py.at[i] = Joined(connective, pa.at[i] != 0, pb.at[i] != 0) ? 1 : 0;
  StorePack<N>(y, first, layout.count, py);
}

template <typename T, int N>
__global__ void WhereKernel(float value, BroadcastLayout layout, const uint8_t* condition,
                            const T* a, const T* b, T* y) {
  const int64_t first = GridThread() * N;
  if (first >= layout.count) return;
  const PackPlace<3> place = Locate<3>(layout, first);
  const int64_t count = layout.count - first;
  const auto mask = LoadOperand<N>(condition, place.first[0], place.repeats[0], count);
  const auto pa = LoadOperand<N>(a, place.first[1], place.repeats[1], count);
  Pack<T, N> pb;
  if (b != nullptr) {
    pb = LoadOperand<N>(b, place.first[2], place.repeats[2], count);
  } else {
    for (int i = 0; i < N; ++i) Store(&pb.at[i], value);
  }
  for (int i = 0; i < N; ++i) {
    if (mask.at[i] != 0) pb.at[i] = pa.at[i];
  }
  StorePack<N>(y, first, layout.count, pb);
}

template <typename T, int N>
void LaunchComparePacks(const CompareWork& work, device::CudaStream stream) {
  Launch(stream, &CompareKernel<T, N>, dim3(ElementBlocks(work.layout.count, N)),
         dim3(kElementThreads), 0, work.relation, static_cast<Compared<T>>(work.value), work.layout,
         static_cast<const T*>(work.a), static_cast<const T*>(work.b),
         static_cast<uint8_t*>(work.y));
}

template <typename T>
void LaunchCompareOf(const CompareWork& work, device::CudaStream stream) {
  work.layout.Packs(kPackSize<T>) ? LaunchComparePacks<T, kPackSize<T>>(work, stream)
                                  : LaunchComparePacks<T, 1>(work, stream);
}

template <int N>
void LaunchLogicalPacks(const LogicalWork& work, device::CudaStream stream) {
  Launch(stream, &LogicalKernel<N>, dim3(ElementBlocks(work.layout.count, N)),
         dim3(kElementThreads), 0, work.connective, work.layout,
         static_cast<const uint8_t*>(work.a), static_cast<const uint8_t*>(work.b),
         static_cast<uint8_t*>(work.y));
}

template <typename T, int N>
void LaunchWherePacks(const WhereWork& work, device::CudaStream stream) {
  Launch(stream, &WhereKernel<T, N>, dim3(ElementBlocks(work.layout.count, N)),
         dim3(kElementThreads), 0, work.value, work.layout,
         static_cast<const uint8_t*>(work.condition), static_cast<const T*>(work.a),
         static_cast<const T*>(work.b), static_cast<T*>(work.y));
}

template <typename T>
void LaunchWhereOf(const WhereWork& work, device::CudaStream stream) {
  work.layout.Packs(kPackSize<T>) ? LaunchWherePacks<T, kPackSize<T>>(work, stream)
                                  : LaunchWherePacks<T, 1>(work, stream);
}

}  // namespace

void LaunchCompare(const CompareWork& work, device::CudaStream stream) {
  if (work.layout.count == 0) return;
  WithStored(work.dtype, [&]<typename T>(T*) { LaunchCompareOf<T>(work, stream); });
}

void LaunchLogical(const LogicalWork& work, device::CudaStream stream) {
  if (work.layout.count == 0) return;
  constexpr int kPack = kPackSize<uint8_t>;
  work.layout.Packs(kPack) ? LaunchLogicalPacks<kPack>(work, stream)
                           : LaunchLogicalPacks<1>(work, stream);
}

void LaunchWhere(const WhereWork& work, device::CudaStream stream) {
  if (work.layout.count == 0) return;
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchWhereOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
