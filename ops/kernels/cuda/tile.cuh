// Products of tiles in shared memory, for kernels that no library serves: attention and
// convolutions. A block of 256 threads computes a tile of 64 x 64 in f32; thread t has the rows
// from 4 (t / 16) and the columns from 4 (t % 16), 4 of each. Thread rule: as its callers say.
#pragma once

#include "ops/kernels/cuda/launch.cuh"

// Unrolls the loop that follows, so that arrays which the loop counts through stay in registers.
#ifdef WEIR_CUDA_EMULATED
#define WEIR_UNROLL
#else
#define WEIR_UNROLL _Pragma("unroll")
#endif

namespace weir::kernels::WEIR_CUDA_SPACE {

constexpr int kTile = 64;          // rows and columns
constexpr int kTileThreads = 256;  // of a block
constexpr int kPart = 4;           // rows and columns of a thread
constexpr int kTileStride = 68;    // floats from a row of a tile in shared memory to the next
constexpr int kSlice = 32;         // rows of a slice: what is summed at a time
constexpr int kTileFloats = kTile * kTileStride;
constexpr int kSliceFloats = kSlice * kTileStride;

// The part of a tile that one thread has.
struct TilePart {
  float at[kPart][kPart];

  __device__ void Clear() {
    WEIR_UNROLL
    for (int i = 0; i < kPart; ++i) {
      WEIR_UNROLL
      for (int j = 0; j < kPart; ++j) at[i][j] = 0;
    }
  }
};

__device__ inline int FirstRowOfThread() {
  return static_cast<int>(threadIdx.x) / (kTile / kPart) * kPart;
}
__device__ inline int FirstColumnOfThread() {
  return static_cast<int>(threadIdx.x) % (kTile / kPart) * kPart;
}

// Adds to sums[row][column] the sum over `depth` of left[.][row] * right[.][column].
template <int kDepth>
__device__ inline void AddProducts(const float* left, const float* right, TilePart& sums) {
  using Four = Pack<float, kPart>;
  const float* const rows = left + FirstRowOfThread();
  const float* const columns = right + FirstColumnOfThread();
#ifndef WEIR_CUDA_EMULATED
#pragma unroll 8
#endif
  for (int d = 0; d < kDepth; ++d) {
    const Four a = *reinterpret_cast<const Four*>(rows + d * kTileStride);
    const Four b = *reinterpret_cast<const Four*>(columns + d * kTileStride);
    WEIR_UNROLL
    for (int i = 0; i < kPart; ++i) {
      WEIR_UNROLL
      for (int j = 0; j < kPart; ++j) sums.at[i][j] += a.at[i] * b.at[j];
    }
  }
}

// Stores a tile transposed: to[column][row].
__device__ inline void StoreTransposed(const TilePart& part, float* to) {
  using Four = Pack<float, kPart>;
  WEIR_UNROLL
  for (int j = 0; j < kPart; ++j) {
    Four column;
    WEIR_UNROLL
    for (int i = 0; i < kPart; ++i) column.at[i] = part.at[i][j];
    *reinterpret_cast<Four*>(to + (FirstColumnOfThread() + j) * kTileStride + FirstRowOfThread()) =
        column;
  }
}

// At most 64 rows of a tensor in global memory.
template <typename T>
struct TileRows {
  const T* first;
  int64_t stride;   // elements from a row to the next
  int64_t rows;     // those from here on count as zeros
  int64_t columns;  // those from here on count as zeros
};

// Returns kPack elements from a place, or zeros beyond the rows or columns. With more than one
// element, `columns`, `stride` and the address are multiples of the pack.
template <int kPack, typename T>
__device__ inline Pack<float, kPack> PackAt(const TileRows<T>& from, int row, int64_t column) {
  Pack<float, kPack> pack{};
  if (row >= from.rows || column >= from.columns) return pack;
  const auto stored =
      *reinterpret_cast<const Pack<T, kPack>*>(from.first + row * from.stride + column);
  WEIR_UNROLL
  for (int i = 0; i < kPack; ++i) pack.at[i] = ToFloat(stored.at[i]);
  return pack;
}

// Loads kSlice columns from `column` on, transposed: to[column][row].
template <int kPack, typename T>
__device__ inline void LoadSlice(const TileRows<T>& from, int64_t column, float* to) {
  for (int item = static_cast<int>(threadIdx.x); item < kTile * kSlice / kPack;
       item += kTileThreads) {
    const int row = item % kTile, at = item / kTile * kPack;
    const Pack<float, kPack> pack = PackAt<kPack>(from, row, column + at);
    WEIR_UNROLL
    for (int i = 0; i < kPack; ++i) to[(at + i) * kTileStride + row] = pack.at[i];
  }
}

// Loads kTile columns from `column` on, as they lie: to[row][column].
template <int kPack, typename T>
__device__ inline void LoadTile(const TileRows<T>& from, int64_t column, float* to) {
  constexpr int kPacks = kTile / kPack;
  for (int item = static_cast<int>(threadIdx.x); item < kTile * kPacks; item += kTileThreads) {
    const int row = item / kPacks, at = item % kPacks * kPack;
    *reinterpret_cast<Pack<float, kPack>*>(to + row * kTileStride + at) =
        PackAt<kPack>(from, row, column + at);
  }
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
