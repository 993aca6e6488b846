// Attention and its gradient share these: which keys a query sees, and scores of a tile.
#pragma once

#include "ops/kernels/cuda/attention.h"
#include "ops/kernels/cuda/tile.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kHidden = -INFINITY;  // the score of a key that the query does not see

// Columns of the width that a block computes.
template <int kChunks>
constexpr int kColumns = kChunks* kTile;

// The (batch, head or group, tile, part of the width) of a block.
struct AttentionBlock {
  int64_t batch, head, tile, column;
};

// Blocks count the tiles first, from the last tile, which is the longest if causal.
__device__ inline AttentionBlock BlockHere(int64_t tiles, int64_t heads, int64_t parts,
                                           int columns) {
  int64_t item = blockIdx.x;
  AttentionBlock block{};
  block.tile = tiles - 1 - item % tiles;
  item /= tiles;
  block.column = item % parts * columns;
  item /= parts;
  block.head = item % heads;
  block.batch = item / heads;
  return block;
}

// Sets scores[row][column] to the sum over the width of left[row] * right[column]. `slices` has
// room for two slices.
template <int kPack, typename T>
__device__ inline void Scores(const TileRows<T>& left, const TileRows<T>& right, int64_t width,
                              float* slices, TilePart& scores) {
  scores.Clear();
  for (int64_t column = 0; column < width; column += kSlice) {
    __syncthreads();
    LoadSlice<kPack>(left, column, slices);
    LoadSlice<kPack>(right, column, slices + kSliceFloats);
    __syncthreads();
    AddProducts<kSlice>(slices, slices + kSliceFloats, scores);
  }
}

// Returns what the mask adds to a score in units of log2.
__device__ inline float AddedByMask(const AttentionSizes& sizes, const void* mask, int64_t at) {
  constexpr float kHidesBelow = -1e5f;  // as the kHidesBelow of attention_shape.h
  if (sizes.mask_dtype == DType::kBool)
    return static_cast<const uint8_t*>(mask)[at] != 0 ? 0.0f : kHidden;
  const float added = RealAt(sizes.mask_dtype, mask, at);
  return added < kHidesBelow ? kHidden : added * kLog2E;
}

// Returns the score of a query and a key in units of log2, or kHidden.
__device__ inline float ScoreOf(const AttentionSizes& sizes, const void* mask, int64_t batch,
                                int64_t head, int64_t query, int64_t key, float product) {
  if (query >= sizes.length || key >= sizes.keys) return kHidden;
  if (sizes.causal && key > query) return kHidden;
  if (sizes.window > 0 && query - key >= sizes.window) return kHidden;
  float score = product * (sizes.scale * kLog2E);
  if (sizes.has_mask) {
    score += AddedByMask(sizes, mask,
                         batch * sizes.mask_batch + head * sizes.mask_head +
                             query * sizes.mask_query + key * sizes.mask_key);
  }
  return score;
}

// Returns at most 64 rows of q, o or do from query `first` on.
template <typename T>
__device__ inline TileRows<T> QueryRows(const AttentionSizes& sizes, const T* of, int64_t batch,
                                        int64_t head, int64_t first) {
  return {of + ((batch * sizes.length + first) * sizes.heads + head) * sizes.width,
          sizes.heads * sizes.width, sizes.length - first, sizes.width};
}

// Returns at most 64 rows of k or v from key `first` on.
template <typename T>
__device__ inline TileRows<T> KeyRows(const AttentionSizes& sizes, const T* of, int64_t batch,
                                      int64_t group, int64_t first) {
  return {of + ((batch * sizes.keys + first) * sizes.groups + group) * sizes.width,
          sizes.groups * sizes.width, sizes.keys - first, sizes.width};
}

// The tiles of keys that a tile of queries sees, and the other way round: [begin, end).
struct TileRange {
  int64_t begin, end;
};

__device__ inline int64_t TilesOf(int64_t length) { return (length + kTile - 1) / kTile; }

__device__ inline TileRange KeyTilesOf(const AttentionSizes& sizes, int64_t query_tile) {
  const int64_t first = query_tile * kTile - sizes.window + 1;
  return {sizes.window > 0 && first > 0 ? first / kTile : 0,
          sizes.causal ? query_tile + 1 : TilesOf(sizes.keys)};
}

__device__ inline TileRange QueryTilesOf(const AttentionSizes& sizes, int64_t key_tile) {
  const int64_t tiles = TilesOf(sizes.length);
  if (!sizes.causal) return {0, tiles};
  const int64_t end = sizes.window > 0 ? TilesOf((key_tile + 1) * kTile - 1 + sizes.window) : tiles;
  return {key_tile, end < tiles ? end : tiles};
}

// Stores a thread's part of results, times `factor`, into the columns from `column` on of rows from
// `first` on.
template <typename T>
__device__ inline void StorePart(const TilePart& part, const float (&factor)[kPart], T* first,
                                 int64_t stride, int64_t rows, int64_t columns, int64_t column) {
  column += FirstColumnOfThread();
  for (int i = 0; i < kPart; ++i) {
    const int row = FirstRowOfThread() + i;
    if (row >= rows) return;
    T* const to = first + row * stride + column;
    if (columns % kPart == 0 && column < columns) {
      Pack<T, kPart> pack;
      WEIR_UNROLL
      for (int j = 0; j < kPart; ++j) Store(&pack.at[j], part.at[i][j] * factor[i]);
      *reinterpret_cast<Pack<T, kPart>*>(to) = pack;
    } else {
      WEIR_UNROLL
      for (int j = 0; j < kPart; ++j) {
        if (column + j < columns) Store(to + j, part.at[i][j] * factor[i]);
      }
    }
  }
}

// Returns the number of parts into which blocks of `columns` columns cut the width.
inline int64_t PartsOf(int64_t width, int columns) {
  return width == 0 ? 1 : (width + columns - 1) / columns;
}

// Calls launch.template operator()<T, kPack, kChunks>() with what suits the type and the width.
template <typename Launcher>
void WithAttentionTypes(const AttentionSizes& sizes, const Launcher& launch) {
  WithReal(sizes.dtype, [&]<typename T>(T*) {
    if (sizes.width % kPackSize<T> != 0) {
      launch.template Run<T, 1, 1>();
    } else if (sizes.width <= kTile) {
      launch.template Run<T, kPackSize<T>, 1>();
    } else {
      launch.template Run<T, kPackSize<T>, 2>();
    }
  });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
