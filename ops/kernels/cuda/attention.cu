#include "ops/kernels/cuda/attention.h"

#include "ops/kernels/cuda/attention_tile.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

// The maximum and the sum over the 16 threads that have a row.
__device__ inline float RowMax(float x) {
  for (int distance = kTile / kPart / 2; distance > 0; distance /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}
__device__ inline float RowSum(float x) {
  for (int distance = kTile / kPart / 2; distance > 0; distance /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

// Rows are queries, columns keys. When larger scores appear, earlier sums and results are
// corrected.
template <typename T, int kPack, int kChunks>
__global__ void __launch_bounds__(kTileThreads, 1)
    AttentionKernel(AttentionWork work, int64_t parts) {
  WEIR_SHARED(float, shared);
  float* const weights = shared;               // [keys, queries]
  float* const slices = shared + kTileFloats;  // two slices, or a tile of values
  const AttentionSizes& sizes = work.sizes;
  const AttentionBlock block =
      BlockHere(TilesOf(sizes.length), sizes.heads, parts, kColumns<kChunks>);
  const int64_t group = block.head / (sizes.heads / sizes.groups);
  const int64_t first = block.tile * kTile;
  const TileRows<T> queries =
      QueryRows(sizes, static_cast<const T*>(work.q), block.batch, block.head, first);

  TilePart results[kChunks];
  float max[kPart], sum[kPart];
  WEIR_UNROLL
  for (int c = 0; c < kChunks; ++c) results[c].Clear();
  WEIR_UNROLL
  for (int i = 0; i < kPart; ++i) {
    max[i] = kHidden;
    sum[i] = 0;
  }
  const TileRange range = KeyTilesOf(sizes, block.tile);
  for (int64_t tile = range.begin; tile < range.end; ++tile) {
    const int64_t first_key = tile * kTile;
    TilePart scores;
    Scores<kPack>(queries,
                  KeyRows(sizes, static_cast<const T*>(work.k), block.batch, group, first_key),
                  sizes.width, slices, scores);
    WEIR_UNROLL
    for (int i = 0; i < kPart; ++i) {
      const int64_t query = first + FirstRowOfThread() + i;
      float largest = max[i];
      WEIR_UNROLL
      for (int j = 0; j < kPart; ++j) {
        scores.at[i][j] = ScoreOf(sizes, work.mask, block.batch, block.head, query,
                                  first_key + FirstColumnOfThread() + j, scores.at[i][j]);
        largest = fmaxf(largest, scores.at[i][j]);
      }
      largest = RowMax(largest);
      // Where no key was seen so far, scores are measured from 0, so that weights are 0, not NaN.
      const float origin = largest == kHidden ? 0.0f : largest;
      const float factor = exp2f(max[i] - origin);
      float total = 0;
      WEIR_UNROLL
      for (int j = 0; j < kPart; ++j) {
        scores.at[i][j] = exp2f(scores.at[i][j] - origin);
        total += scores.at[i][j];
      }
      max[i] = largest;
      sum[i] = sum[i] * factor + RowSum(total);
      WEIR_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        WEIR_UNROLL
        for (int j = 0; j < kPart; ++j) results[c].at[i][j] *= factor;
      }
    }
    __syncthreads();  // without a width, nothing has waited since weights were last read
    StoreTransposed(scores, weights);
    const TileRows<T> values =
        KeyRows(sizes, static_cast<const T*>(work.v), block.batch, group, first_key);
    WEIR_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      __syncthreads();
      LoadTile<kPack>(values, block.column + c * kTile, slices);
      __syncthreads();
      AddProducts<kTile>(weights, slices, results[c]);
    }
  }
  // The result of a query that sees no key is 0.
  float inverse[kPart];
  WEIR_UNROLL
  for (int i = 0; i < kPart; ++i) inverse[i] = sum[i] == 0 ? 0.0f : 1.0f / sum[i];
  T* const o = static_cast<T*>(work.o) + (queries.first - static_cast<const T*>(work.q));
  WEIR_UNROLL
  for (int c = 0; c < kChunks; ++c) {
    StorePart(results[c], inverse, o, queries.stride, queries.rows, sizes.width,
              block.column + c * kTile);
  }
  if (work.lse == nullptr || block.column != 0 || FirstColumnOfThread() != 0) return;
  WEIR_UNROLL
  for (int i = 0; i < kPart; ++i) {
    const int row = FirstRowOfThread() + i;
    if (row >= queries.rows) continue;
    work.lse[(block.batch * sizes.heads + block.head) * sizes.length + first + row] =
        max[i] / kLog2E + logf(sum[i]);
  }
}

struct Launcher {
  const AttentionWork& work;
  device::CudaStream stream;

  template <typename T, int kPack, int kChunks>
  void Run() const {
    const AttentionSizes& sizes = work.sizes;
    const int64_t parts = PartsOf(sizes.width, kColumns<kChunks>);
    const int64_t blocks = (sizes.length + kTile - 1) / kTile * parts * sizes.heads * sizes.batch;
    if (blocks == 0) return;
    Launch(stream, &AttentionKernel<T, kPack, kChunks>, dim3(static_cast<unsigned>(blocks)),
           dim3(kTileThreads), (kTileFloats + 2 * kSliceFloats) * sizeof(float), work, parts);
  }
};

}  // namespace

void LaunchAttention(const AttentionWork& work, device::CudaStream stream) {
  WithAttentionTypes(work.sizes, Launcher{work, stream});
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
