// Reads: a thread moves a pack of elements of y. Sums: where one index selects a row and there is
// one outer place, the samples are sorted by row as in the gradient of an embedding. Otherwise a
// thread has a column, an outer and an inner place, and adds its elements in order, so that no
// result depends on the order of threads.
#include "ops/kernels/cuda/indexing.h"

#include "ops/kernels/cuda/block_reduce.cuh"
#include "ops/kernels/cuda/elementwise.cuh"
#include "ops/kernels/cuda/embedding.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 256;

template <typename T, int kVector>
__global__ void IndexedReadKernel(IndexedReadWork work) {
  const IndexedSizes& sizes = work.sizes;
  const int64_t per_row = sizes.inner / kVector;
  for (int64_t at = GlobalThread(); at < sizes.outer * sizes.count * per_row; at += NumThreads()) {
    const Quotient place = Divide(at, per_row);
    const Quotient narrow = Divide(place.quotient, sizes.count);
    const int64_t j = place.remainder * kVector;
    const int64_t row = work.index[narrow.quotient * sizes.outer_stride +
                                   narrow.remainder * sizes.count_stride + j * sizes.inner_stride] -
                        sizes.first;
    Pack<T, kVector> pack = {};
    if (0 <= row && row < sizes.rows) {
      pack = *reinterpret_cast<const Pack<T, kVector>*>(
          static_cast<const T*>(work.x) + (narrow.quotient * sizes.rows + row) * sizes.inner + j);
    }
    StoreWhole(static_cast<T*>(work.y) + at * kVector, pack);
  }
}

template <typename T>
void LaunchReadOf(const IndexedReadWork& work, device::CudaStream stream) {
  constexpr int kPack = kPackSize<T>;
  const bool packs = work.sizes.inner_stride == 0 && work.sizes.inner % kPack == 0;
  const int64_t count =
      work.sizes.outer * work.sizes.count * (work.sizes.inner / (packs ? kPack : 1));
  if (count == 0) return;
  Launch(stream, packs ? &IndexedReadKernel<T, kPack> : &IndexedReadKernel<T, 1>,
         dim3(NumBlocks(count, kThreads)), dim3(kThreads), 0, work);
}

__global__ void ClearSumsKernel(float* sums, int64_t count) {
  StorePack<4>(sums, GridThread() * 4, count, Pack<float, 4>{});
}

template <typename T>
__global__ void IndexedSumKernel(IndexedSumWork work, float* sums) {
  const IndexedSizes& sizes = work.sizes;
  for (int64_t column = GlobalThread(); column < sizes.outer * sizes.inner;
       column += NumThreads()) {
    const Quotient place = Divide(column, sizes.inner);
    const int64_t o = place.quotient, j = place.remainder;
    const int32_t* index = work.index + o * sizes.outer_stride + j * sizes.inner_stride;
    const T* x = static_cast<const T*>(work.x) + o * sizes.count * sizes.inner + j;
    float* to = sums + o * sizes.rows * sizes.inner + j;
    for (int64_t i = 0; i < sizes.count; ++i) {
      const int64_t row = index[i * sizes.count_stride] - sizes.first;
      if (0 <= row && row < sizes.rows) to[row * sizes.inner] += ToFloat(x[i * sizes.inner]);
    }
  }
}

template <typename T>
__global__ void RoundSumsKernel(const float* sums, T* y, int64_t count) {
  const int64_t first = GridThread() * 4;
  const Pack<float, 4> from = LoadPack<4>(sums, first, count);
  Pack<T, 4> to;
  WEIR_UNROLL
  for (int i = 0; i < 4; ++i) Store(&to.at[i], from.at[i]);
  StorePack<4>(y, first, count, to);
}

bool IsTable(const IndexedSizes& sizes) { return sizes.outer == 1 && sizes.inner_stride == 0; }

void LaunchTableSum(const IndexedSumWork& work, device::CudaStream stream) {
  EmbeddingGradWork table;
  table.dy_dtype = work.x_dtype;
  table.dtable_dtype = work.y_dtype;
  table.num_ids = work.sizes.count;
  table.first = work.sizes.first;
  table.rows = work.sizes.rows;
  table.width = work.sizes.inner;
  table.ids = work.index;
  table.dy = work.x;
  table.dtable = work.y;
  table.workspace = work.workspace;
  LaunchEmbeddingGrad(table, stream);
}

template <typename T>
__global__ void OneHotKernel(OneHotWork work) {
  constexpr int kPack = kPackSize<T>;
  const int64_t count = work.samples * work.rows;
  const int64_t first = GridThread() * kPack;
  if (first >= count) return;
  const Quotient place = Divide(first, work.rows);
  int64_t sample = place.quotient, class_of = place.remainder;
  Pack<T, kPack> pack = {};
  WEIR_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (first + i < count && work.ids[sample] == work.first + class_of) Store(&pack.at[i], 1.0f);
    if (++class_of == work.rows) {
      class_of = 0;
      ++sample;
    }
  }
  StorePack<kPack>(static_cast<T*>(work.y), first, count, pack);
}

template <typename T>
void LaunchOneHotOf(const OneHotWork& work, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(work.samples * work.rows, kPackSize<T>);
  if (blocks == 0) return;
  Launch(stream, &OneHotKernel<T>, dim3(blocks), dim3(kElementThreads), 0, work);
}

}  // namespace

void LaunchIndexedRead(const IndexedReadWork& work, device::CudaStream stream) {
  switch (work.element_bytes) {
    case 1: return LaunchReadOf<uint8_t>(work, stream);
    case 2: return LaunchReadOf<uint16_t>(work, stream);
    default: return LaunchReadOf<uint32_t>(work, stream);
  }
}

int64_t IndexedSumWorkspace(const IndexedSizes& sizes, DType y_dtype) {
  if (IsTable(sizes)) return EmbeddingGradWorkspace(sizes.count, sizes.rows, sizes.inner);
  return y_dtype == DType::kF32 ? 0 : sizes.outer * sizes.rows * sizes.inner * 4;
}

void LaunchIndexedSum(const IndexedSumWork& work, device::CudaStream stream) {
  const IndexedSizes& sizes = work.sizes;
  const int64_t elements = sizes.outer * sizes.rows * sizes.inner;
  if (elements == 0) return;
  if (IsTable(sizes)) return LaunchTableSum(work, stream);
  const bool rounds = work.y_dtype != DType::kF32;
  float* const sums = static_cast<float*>(rounds ? work.workspace : work.y);
  const dim3 packs(ElementBlocks(elements, 4));
  Launch(stream, &ClearSumsKernel, packs, dim3(kElementThreads), 0, sums, elements);
  if (sizes.count > 0) {
    WithReal(work.x_dtype, [&]<typename T>(T*) {
      Launch(stream, &IndexedSumKernel<T>, dim3(NumBlocks(sizes.outer * sizes.inner, kThreads)),
             dim3(kThreads), 0, work, sums);
    });
  }
  if (rounds) {
    WithReal(work.y_dtype, [&]<typename T>(T*) {
      Launch(stream, &RoundSumsKernel<T>, packs, dim3(kElementThreads), 0, sums,
             static_cast<T*>(work.y), elements);
    });
  }
}

void LaunchOneHot(const OneHotWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOneHotOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
