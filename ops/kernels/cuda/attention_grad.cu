// With P = 2^(score - lse), D = do . o and dS = P (do v^T - D):
//   dv = sum of P^T do,   dq = sum of dS k scale,   dk = sum of dS^T q scale,
// and dS is the gradient of a mask that is added to the scores. One kernel has blocks of queries
// and sums over keys, the other has blocks of keys and sums over queries: nothing is added by two
// blocks.
#include "ops/kernels/cuda/attention.h"
#include "ops/kernels/cuda/attention_tile.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kInnerThreads = 256;

// A warp computes D of one query and head.
template <typename T>
__global__ void InnerKernel(AttentionGradWork work, int64_t rows) {
  const AttentionSizes& sizes = work.sizes;
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (kInnerThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;  // a row of [batch, length, heads]
  const T* const o = static_cast<const T*>(work.o) + row * sizes.width;
  const T* const d_o = static_cast<const T*>(work.d_o) + row * sizes.width;
  float sum = 0;
  for (int64_t i = threadIdx.x % kWarp; i < sizes.width; i += kWarp)
    sum += ToFloat(o[i]) * ToFloat(d_o[i]);
  sum = WarpSum(sum);
  const int64_t head = row % sizes.heads, query = row / sizes.heads % sizes.length;
  const int64_t batch = row / sizes.heads / sizes.length;
  if (threadIdx.x % kWarp == 0)
    work.inner[(batch * sizes.heads + head) * sizes.length + query] = sum;
}

// QueryNumbers are what a query's scores are measured from, and the query's D.
struct QueryNumbers {
  float lse, inner;
};

__device__ inline QueryNumbers NumbersOf(const AttentionGradWork& work, int64_t batch, int64_t head,
                                         int64_t query) {
  if (query >= work.sizes.length) return {0, 0};
  const int64_t at = (batch * work.sizes.heads + head) * work.sizes.length + query;
  const float lse = work.lse[at];
  // The scores of a query that sees no key are -inf. Measured from 0, their weights are 0.
  return {lse == kHidden ? 0.0f : lse * kLog2E, work.inner[at]};
}

__device__ inline float WeightOf(float score, float lse) {
  const float exponent = score - lse;
  return exp2f(exponent > 126 ? 126.0f : exponent);
}

// Rows are queries, columns keys.
template <typename T, int kPack, int kChunks>
__global__ void __launch_bounds__(kTileThreads, 1)
    QueryGradKernel(AttentionGradWork work, int64_t parts) {
  WEIR_SHARED(float, shared);
  float* const d_scores = shared;              // [keys, queries]
  float* const slices = shared + kTileFloats;  // two slices, or a tile of keys
  const AttentionSizes& sizes = work.sizes;
  const AttentionBlock block =
      BlockHere(TilesOf(sizes.length), sizes.heads, parts, kColumns<kChunks>);
  const int64_t group = block.head / (sizes.heads / sizes.groups);
  const int64_t first = block.tile * kTile;
  const TileRows<T> queries =
      QueryRows(sizes, static_cast<const T*>(work.q), block.batch, block.head, first);
  const TileRows<T> d_results =
      QueryRows(sizes, static_cast<const T*>(work.d_o), block.batch, block.head, first);
  QueryNumbers numbers[kPart];
  WEIR_UNROLL
  for (int i = 0; i < kPart; ++i)
    numbers[i] = NumbersOf(work, block.batch, block.head, first + FirstRowOfThread() + i);

  TilePart sums[kChunks];
  WEIR_UNROLL
  for (int c = 0; c < kChunks; ++c) sums[c].Clear();
  const bool stores_scores = work.d_scores != nullptr && block.column == 0;
  const TileRange range = KeyTilesOf(sizes, block.tile);
  for (int64_t tile = stores_scores ? 0 : range.begin;
       tile < (stores_scores ? TilesOf(sizes.keys) : range.end); ++tile) {
    const int64_t first_key = tile * kTile;
    const bool seen = tile >= range.begin && tile < range.end;
    TilePart scores, d_weights;
    scores.Clear();
    if (seen) {
      const TileRows<T> keys =
          KeyRows(sizes, static_cast<const T*>(work.k), block.batch, group, first_key);
      Scores<kPack>(queries, keys, sizes.width, slices, scores);
      Scores<kPack>(d_results,
                    KeyRows(sizes, static_cast<const T*>(work.v), block.batch, group, first_key),
                    sizes.width, slices, d_weights);
      WEIR_UNROLL
      for (int i = 0; i < kPart; ++i) {
        WEIR_UNROLL
        for (int j = 0; j < kPart; ++j) {
          const float score =
              ScoreOf(sizes, work.mask, block.batch, block.head, first + FirstRowOfThread() + i,
                      first_key + FirstColumnOfThread() + j, scores.at[i][j]);
          scores.at[i][j] = score == kHidden ? 0.0f
                                             : WeightOf(score, numbers[i].lse) *
                                                   (d_weights.at[i][j] - numbers[i].inner);
        }
      }
      __syncthreads();
      StoreTransposed(scores, d_scores);
      WEIR_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        __syncthreads();
        LoadTile<kPack>(keys, block.column + c * kTile, slices);
        __syncthreads();
        AddProducts<kTile>(d_scores, slices, sums[c]);
      }
    }
    if (!stores_scores) continue;
    for (int i = 0; i < kPart; ++i) {
      const int64_t query = first + FirstRowOfThread() + i;
      WEIR_UNROLL
      for (int j = 0; j < kPart; ++j) {
        const int64_t key = first_key + FirstColumnOfThread() + j;
        if (query >= sizes.length || key >= sizes.keys) continue;
        work.d_scores[((block.batch * sizes.heads + block.head) * sizes.length + query) *
                          sizes.keys +
                      key] = scores.at[i][j];
      }
    }
  }
  const float factor[kPart] = {sizes.scale, sizes.scale, sizes.scale, sizes.scale};
  T* const dq = static_cast<T*>(work.dq) + (queries.first - static_cast<const T*>(work.q));
  WEIR_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    StorePart(sums[c], factor, dq, queries.stride, queries.rows, sizes.width,
              block.column + c * kTile);
  }
}

// Rows are keys, columns queries.
template <typename T, int kPack, int kChunks>
__global__ void __launch_bounds__(kTileThreads, 1)
    KeyGradKernel(AttentionGradWork work, int64_t parts) {
  WEIR_SHARED(float, shared);
  float* const weights = shared;  // [queries, keys]
  float* const d_scores = shared + kTileFloats;
  float* const slices = shared + 2 * kTileFloats;  // two slices, or a tile of queries
  const AttentionSizes& sizes = work.sizes;
  const AttentionBlock block =
      BlockHere(TilesOf(sizes.keys), sizes.groups, parts, kColumns<kChunks>);
  const int64_t group = block.head, heads_per_group = sizes.heads / sizes.groups;
  const int64_t first_key = block.tile * kTile;
  const TileRows<T> keys =
      KeyRows(sizes, static_cast<const T*>(work.k), block.batch, group, first_key);
  const TileRows<T> values =
      KeyRows(sizes, static_cast<const T*>(work.v), block.batch, group, first_key);

  TilePart dk[kChunks], dv[kChunks];
  WEIR_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    dk[c].Clear();
    dv[c].Clear();
  }
  const TileRange range = QueryTilesOf(sizes, block.tile);
  for (int64_t head = group * heads_per_group; head < (group + 1) * heads_per_group; ++head) {
    for (int64_t tile = range.begin; tile < range.end; ++tile) {
      const int64_t first = tile * kTile;
      const TileRows<T> queries =
          QueryRows(sizes, static_cast<const T*>(work.q), block.batch, head, first);
      const TileRows<T> d_results =
          QueryRows(sizes, static_cast<const T*>(work.d_o), block.batch, head, first);
      TilePart scores, d_weights;
      Scores<kPack>(keys, queries, sizes.width, slices, scores);
      Scores<kPack>(values, d_results, sizes.width, slices, d_weights);
      WEIR_UNROLL
      for (int j = 0; j < kPart; ++j) {
        const int64_t query = first + FirstColumnOfThread() + j;
        const QueryNumbers numbers = NumbersOf(work, block.batch, head, query);
        WEIR_UNROLL
        for (int i = 0; i < kPart; ++i) {
          const float score = ScoreOf(sizes, work.mask, block.batch, head, query,
                                      first_key + FirstRowOfThread() + i, scores.at[i][j]);
          const float weight = score == kHidden ? 0.0f : WeightOf(score, numbers.lse);
          scores.at[i][j] = weight;
          d_weights.at[i][j] =
              score == kHidden ? 0.0f : weight * (d_weights.at[i][j] - numbers.inner);
        }
      }
      __syncthreads();
      StoreTransposed(scores, weights);
      StoreTransposed(d_weights, d_scores);
      WEIR_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        __syncthreads();
        LoadTile<kPack>(d_results, block.column + c * kTile, slices);
        __syncthreads();
        AddProducts<kTile>(weights, slices, dv[c]);
        __syncthreads();
        LoadTile<kPack>(queries, block.column + c * kTile, slices);
        __syncthreads();
        AddProducts<kTile>(d_scores, slices, dk[c]);
      }
    }
  }
  const float one[kPart] = {1, 1, 1, 1};
  const float factor[kPart] = {sizes.scale, sizes.scale, sizes.scale, sizes.scale};
  const int64_t at = keys.first - static_cast<const T*>(work.k);
  WEIR_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    const int64_t column = block.column + c * kTile;
    StorePart(dk[c], factor, static_cast<T*>(work.dk) + at, keys.stride, keys.rows, sizes.width,
              column);
    StorePart(dv[c], one, static_cast<T*>(work.dv) + at, keys.stride, keys.rows, sizes.width,
              column);
  }
}

struct Launcher {
  const AttentionGradWork& work;
  device::CudaStream stream;

  template <typename T, int kPack, int kChunks>
  void Run() const {
    const AttentionSizes& sizes = work.sizes;
    const int64_t rows = sizes.batch * sizes.length * sizes.heads;
    if (rows > 0) {
      constexpr int64_t kRows = kInnerThreads / kWarp;
      Launch(stream, &InnerKernel<T>, dim3(static_cast<unsigned>((rows + kRows - 1) / kRows)),
             dim3(kInnerThreads), 0, work, rows);
    }
    const int64_t parts = PartsOf(sizes.width, kColumns<kChunks>);
    const auto blocks_of = [&](int64_t length, int64_t heads) {
      return static_cast<unsigned>((length + kTile - 1) / kTile * parts * heads * sizes.batch);
    };
    constexpr size_t kSlices = 2 * kSliceFloats;
    if (const unsigned blocks = blocks_of(sizes.length, sizes.heads); blocks > 0) {
      Launch(stream, &QueryGradKernel<T, kPack, kChunks>, dim3(blocks), dim3(kTileThreads),
             (kTileFloats + kSlices) * sizeof(float), work, parts);
    }
    if (const unsigned blocks = blocks_of(sizes.keys, sizes.groups); blocks > 0) {
      Launch(stream, &KeyGradKernel<T, kPack, kChunks>, dim3(blocks), dim3(kTileThreads),
             (2 * kTileFloats + kSlices) * sizeof(float), work, parts);
    }
  }
};

}  // namespace

void LaunchAttentionGrad(const AttentionGradWork& work, device::CudaStream stream) {
  WithAttentionTypes(work.sizes, Launcher{work, stream});
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
