// The gradient of a row of the table is the sum over the samples whose id is that row, in the order
// of the samples. The samples are first sorted by row: a stable sort by digits of 8 bits, so the
// order of a row's samples is kept and no result depends on the order of threads. The runs of equal
// rows are then summed. A long run is summed in pieces by many warps.
#include "ops/kernels/cuda/embedding.h"

#include "ops/kernels/cuda/block_reduce.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kDigits = 256;  // as many as threads of a block
constexpr int kDigitBits = 8;
constexpr int kTile = 2048;  // keys that a block sorts
constexpr int kPiece = 128;  // samples of a piece of a long run

template <typename T, int kVector>
__global__ void EmbeddingKernel(EmbeddingWork work) {
  const int64_t per_row = work.width / kVector;
  for (int64_t at = GlobalThread(); at < work.num_ids * per_row; at += NumThreads()) {
    const Quotient place = Divide(at, per_row);
    const int64_t row = work.ids[place.quotient] - work.first;
    Pack<T, kVector> pack = {};
    if (0 <= row && row < work.rows) {
      pack = *reinterpret_cast<const Pack<T, kVector>*>(
          static_cast<const T*>(work.table) + row * work.width + place.remainder * kVector);
    }
    StoreWhole(static_cast<T*>(work.y) + at * kVector, pack);
  }
}

template <typename T>
void LaunchEmbeddingOf(const EmbeddingWork& work, device::CudaStream stream) {
  constexpr int kPack = kPackSize<T>;
  const bool packs = work.width % kPack == 0;
  const int64_t count = work.num_ids * (packs ? work.width / kPack : work.width);
  if (count == 0) return;
  Launch(stream, packs ? &EmbeddingKernel<T, kPack> : &EmbeddingKernel<T, 1>,
         dim3(NumBlocks(count, kThreads)), dim3(kThreads), 0, work);
}

// The samples while they are sorted: their rows as keys, `rows` for ids of other shards, and their
// numbers. The first pass reads the ids, and the number of a sample is its place.
struct SortWork {
  const int32_t* ids;  // null after the first pass
  int64_t first, rows;
  const uint32_t* keys;
  const uint32_t* samples;
  uint32_t* sorted_keys;
  uint32_t* sorted_samples;
  uint32_t* counts;  // [digit][tile]: of keys; after the scan, of keys before those
  int64_t num, num_tiles;
  int shift;
};

__device__ inline uint32_t KeyAt(const SortWork& work, int64_t i) {
  if (work.ids == nullptr) return work.keys[i];
  const int64_t row = work.ids[i] - work.first;
  return static_cast<uint32_t>(0 <= row && row < work.rows ? row : work.rows);
}
__device__ inline uint32_t DigitOf(const SortWork& work, uint32_t key) {
  return (key >> work.shift) % kDigits;
}

__global__ void CountDigitsKernel(SortWork work) {
  WEIR_SHARED(unsigned, counts);
  const int64_t tile = blockIdx.x;
  counts[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < kTile; i += kThreads) {
    const int64_t at = tile * kTile + i;
    if (at < work.num) atomicAdd(&counts[DigitOf(work, KeyAt(work, at))], 1u);
  }
  __syncthreads();
  work.counts[threadIdx.x * work.num_tiles + tile] = counts[threadIdx.x];
}

// Replaces each count by the sum of the counts before it. One block.
__global__ void ScanKernel(uint32_t* counts, int64_t n) {
  WEIR_SHARED(unsigned, of_warp);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int num_warps = blockDim.x / kWarp;
  unsigned before = 0;
  for (int64_t first = 0; first < n; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    const unsigned count = i < n ? counts[i] : 0;
    unsigned sum = count;
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const unsigned left = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += left;
    }
    if (lane == kWarp - 1) of_warp[warp] = sum;
    __syncthreads();
    unsigned before_warp = before, all = before;
    for (int other = 0; other < num_warps; ++other) {
      if (other < warp) before_warp += of_warp[other];
      all += of_warp[other];
    }
    if (i < n) counts[i] = before_warp + sum - count;
    before = all;
    __syncthreads();
  }
}

// Moves the keys of a tile, in their order, behind those with the same digit of earlier tiles.
__global__ void ScatterKernel(SortWork work) {
  WEIR_SHARED(unsigned, shared);
  unsigned* const next = shared;               // by digit: the place of the next key
  unsigned* const of_warp = shared + kDigits;  // [warp][digit]: keys of this round
  const int64_t tile = blockIdx.x;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  next[threadIdx.x] = work.counts[threadIdx.x * work.num_tiles + tile];
  for (int round = 0; round < kTile / kThreads; ++round) {
    if (tile * kTile + static_cast<int64_t>(round) * kThreads >= work.num) break;
    const int64_t i = tile * kTile + static_cast<int64_t>(round) * kThreads + threadIdx.x;
    const bool exists = i < work.num;
    const uint32_t key = exists ? KeyAt(work, i) : 0;
    const uint32_t digit = DigitOf(work, key);
    unsigned same = __ballot_sync(0xffffffffu, exists);
    for (int bit = 0; bit < kDigitBits; ++bit) {
      const bool set = (digit >> bit & 1) != 0;
      const unsigned ballot = __ballot_sync(0xffffffffu, set);
      same &= set ? ballot : ~ballot;
    }
    const int rank = __popc(same & ((1u << lane) - 1));
    for (int w = 0; w < kWarps; ++w) of_warp[w * kDigits + threadIdx.x] = 0;
    __syncthreads();
    if (exists && rank == 0) of_warp[warp * kDigits + digit] = __popc(same);
    __syncthreads();
    if (exists) {
      unsigned place = next[digit] + rank;
      for (int w = 0; w < warp; ++w) place += of_warp[w * kDigits + digit];
      work.sorted_keys[place] = key;
      work.sorted_samples[place] = work.ids == nullptr ? work.samples[i] : static_cast<uint32_t>(i);
    }
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) next[threadIdx.x] += of_warp[w * kDigits + threadIdx.x];
    __syncthreads();
  }
}

// The runs of equal rows among the sorted samples: [begin, end) by row, empty where a row has no
// sample.
struct Runs {
  const uint32_t* keys;
  const uint32_t* samples;
  uint32_t* begin;
  uint32_t* end;
  float* pieces;  // [piece][2][width]: sums of long runs. See PieceKernel.
};

__global__ void ClearRunsKernel(Runs runs, int64_t rows) {
  for (int64_t row = GlobalThread(); row < rows; row += NumThreads()) {
    runs.begin[row] = 0;
    runs.end[row] = 0;
  }
}

__global__ void FindRunsKernel(Runs runs, int64_t num, int64_t rows) {
  for (int64_t i = GlobalThread(); i < num; i += NumThreads()) {
    const uint32_t row = runs.keys[i];
    if (row >= rows) continue;
    if (i == 0 || runs.keys[i - 1] != row) runs.begin[row] = static_cast<uint32_t>(i);
    if (i == num - 1 || runs.keys[i + 1] != row) runs.end[row] = static_cast<uint32_t>(i + 1);
  }
}

// Adds kVector columns of the samples [begin, end) in order.
template <typename T, int kVector>
__device__ inline void SumSamples(const Runs& runs, const T* dy, int64_t width, int64_t column,
                                  int64_t begin, int64_t end, float* sums) {
  for (int64_t i = begin; i < end; ++i) {
    const auto pack = *reinterpret_cast<const Pack<T, kVector>*>(
        dy + static_cast<int64_t>(runs.samples[i]) * width + column);
    WEIR_UNROLL
    for (int j = 0; j < kVector; ++j) sums[j] += ToFloat(pack.at[j]);
  }
}

__device__ inline bool IsLong(int64_t begin, int64_t end) { return end - begin > kPiece; }

// Returns the slot of a long run in the piece of the samples [piece * kPiece, (piece + 1) *
// kPiece): slot 0 if the run has the piece's first sample, else slot 1. A piece meets at most two
// long runs.
__device__ inline int SlotOf(int64_t piece, int64_t begin) { return begin > piece * kPiece; }

// A warp sums 32 * kVector columns of a piece's part of a long run.
template <typename T, int kVector>
__global__ void PieceKernel(EmbeddingGradWork work, Runs runs) {
  const int64_t per_piece = (work.width + kWarp * kVector - 1) / (kWarp * kVector);
  const int64_t num_pieces = (work.num_ids + kPiece - 1) / kPiece;
  const int lane = threadIdx.x % kWarp;
  for (int64_t task = GlobalThread() / kWarp; task < num_pieces * 2 * per_piece;
       task += NumThreads() / kWarp) {
    const int64_t column = (task % per_piece * kWarp + lane) * kVector;
    const int slot = static_cast<int>(task / per_piece % 2);
    const int64_t piece = task / per_piece / 2;
    const int64_t first = piece * kPiece;
    const int64_t last = first + kPiece < work.num_ids ? first + kPiece : work.num_ids;
    const uint32_t row = runs.keys[slot == 0 ? first : last - 1];
    if (row >= work.rows || column >= work.width) continue;
    const int64_t begin = runs.begin[row], end = runs.end[row];
    if (!IsLong(begin, end) || SlotOf(piece, begin) != slot) continue;
    float sums[kVector] = {};
    SumSamples<T, kVector>(runs, static_cast<const T*>(work.dy), work.width, column,
                           begin > first ? begin : first, end < last ? end : last, sums);
    float* to = runs.pieces + (piece * 2 + slot) * work.width + column;
    for (int j = 0; j < kVector; ++j) to[j] = sums[j];
  }
}

// A warp sets 32 * kVector columns of a row of dtable.
template <typename T, typename U, int kVector>
__global__ void RowKernel(EmbeddingGradWork work, Runs runs) {
  const int64_t per_row = (work.width + kWarp * kVector - 1) / (kWarp * kVector);
  const int lane = threadIdx.x % kWarp;
  for (int64_t task = GlobalThread() / kWarp; task < work.rows * per_row;
       task += NumThreads() / kWarp) {
    const Quotient place = Divide(task, per_row);
    const int64_t row = place.quotient;
    const int64_t column = (place.remainder * kWarp + lane) * kVector;
    if (column >= work.width) continue;
    const int64_t begin = runs.begin[row], end = runs.end[row];
    if (work.adds && begin == end) continue;
    float sums[kVector] = {};
    if (IsLong(begin, end)) {
      for (int64_t piece = begin / kPiece; piece <= (end - 1) / kPiece; ++piece) {
        const float* from = runs.pieces + (piece * 2 + SlotOf(piece, begin)) * work.width + column;
        WEIR_UNROLL
        for (int j = 0; j < kVector; ++j) sums[j] += from[j];
      }
    } else {
      SumSamples<T, kVector>(runs, static_cast<const T*>(work.dy), work.width, column, begin, end,
                             sums);
    }
    U* to = static_cast<U*>(work.dtable) + row * work.width + column;
    constexpr int kStore = kVector == 1 ? 1 : kPackSize<U> < kVector ? kPackSize<U> : kVector;
    WEIR_UNROLL
    for (int at = 0; at < kVector; at += kStore) {
      Pack<U, kStore> pack = {};
      if (work.adds) pack = *reinterpret_cast<const Pack<U, kStore>*>(to + at);
      WEIR_UNROLL
      for (int j = 0; j < kStore; ++j) Store(&pack.at[j], ToFloat(pack.at[j]) + sums[at + j]);
      StoreWhole(to + at, pack);
    }
  }
}

constexpr int64_t RoundUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t NumTiles(int64_t num_ids) { return (num_ids + kTile - 1) / kTile; }

// Cuts the workspace into arrays.
class Arrays {
 public:
  explicit Arrays(void* workspace) : start_(static_cast<char*>(workspace)) {}

  template <typename T>
  T* Next(int64_t count) {
    char* const array = start_ + used_;
    used_ += RoundUp(count * static_cast<int64_t>(sizeof(T)));
    return reinterpret_cast<T*>(array);
  }

 private:
  char* const start_;
  int64_t used_ = 0;
};

template <typename T>
void LaunchSums(const EmbeddingGradWork& work, const Runs& runs, device::CudaStream stream) {
  constexpr int kPack = kPackSize<T>;
  const bool packs = work.width % kPackSize<Bf16> == 0;
  const int64_t columns = kWarp * (packs ? kPack : 1);
  const int64_t per_row = (work.width + columns - 1) / columns;
  const int64_t pieces = (work.num_ids + kPiece - 1) / kPiece;
  if (work.num_ids > kPiece) {
    Launch(stream, packs ? &PieceKernel<T, kPack> : &PieceKernel<T, 1>,
           dim3(NumBlocks(pieces * 2 * per_row, kWarps)), dim3(kThreads), 0, work, runs);
  }
  const dim3 blocks(NumBlocks(work.rows * per_row, kWarps));
  WithReal(work.dtable_dtype, [&]<typename To>(To*) {
    Launch(stream, packs ? &RowKernel<T, To, kPack> : &RowKernel<T, To, 1>, blocks, dim3(kThreads),
           0, work, runs);
  });
}

}  // namespace

void LaunchEmbedding(const EmbeddingWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchEmbeddingOf<T>(work, stream); });
}

int64_t EmbeddingGradWorkspace(int64_t num_ids, int64_t rows, int64_t width) {
  const int64_t pieces = num_ids > kPiece ? (num_ids + kPiece - 1) / kPiece : 0;
  return 2 * RoundUp(rows * 4) + 4 * RoundUp(num_ids * 4) +
         RoundUp(kDigits * NumTiles(num_ids) * 4) + RoundUp(pieces * 2 * width * 4);
}

void LaunchEmbeddingGrad(const EmbeddingGradWork& work, device::CudaStream stream) {
  if (work.rows == 0 || work.width == 0) return;
  const int64_t num = work.num_ids;
  Arrays arrays(work.workspace);
  Runs runs;
  runs.begin = arrays.Next<uint32_t>(work.rows);
  runs.end = arrays.Next<uint32_t>(work.rows);
  uint32_t* const keys[2] = {arrays.Next<uint32_t>(num), arrays.Next<uint32_t>(num)};
  uint32_t* const samples[2] = {arrays.Next<uint32_t>(num), arrays.Next<uint32_t>(num)};
  SortWork sort = {};
  sort.ids = work.ids;
  sort.first = work.first;
  sort.rows = work.rows;
  sort.num = num;
  sort.num_tiles = NumTiles(num);
  sort.counts = arrays.Next<uint32_t>(kDigits * sort.num_tiles);
  runs.pieces = arrays.Next<float>(0);
  int to = 0;
  const dim3 tiles(static_cast<unsigned>(sort.num_tiles));
  // Keys are at most `rows`.
  for (; num > 0 && work.rows >> sort.shift > 0; sort.shift += kDigitBits) {
    sort.sorted_keys = keys[to];
    sort.sorted_samples = samples[to];
    Launch(stream, &CountDigitsKernel, tiles, dim3(kThreads), kDigits * sizeof(unsigned), sort);
    Launch(stream, &ScanKernel, dim3(1), dim3(kBlockThreadsMax), kBlockScratch * sizeof(unsigned),
           sort.counts, kDigits * sort.num_tiles);
    Launch(stream, &ScatterKernel, tiles, dim3(kThreads), (1 + kWarps) * kDigits * sizeof(unsigned),
           sort);
    sort.ids = nullptr;
    sort.keys = keys[to];
    sort.samples = samples[to];
    to = 1 - to;
  }
  runs.keys = sort.keys;
  runs.samples = sort.samples;
  Launch(stream, &ClearRunsKernel, dim3(NumBlocks(work.rows, kThreads)), dim3(kThreads), 0, runs,
         work.rows);
  if (num > 0) {
    Launch(stream, &FindRunsKernel, dim3(NumBlocks(num, kThreads)), dim3(kThreads), 0, runs, num,
           work.rows);
  }
  WithReal(work.dy_dtype, [&]<typename T>(T*) { LaunchSums<T>(work, runs, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
