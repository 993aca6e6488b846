// The steps of attention and of its gradient for one tile of queries and one block of keys.
//
// Inside a tile everything is held transposed, a query to a lane: scores are [keys, queries] and
// results [width, queries]. Maxima and sums over keys then combine whole vectors, and neither the
// number of keys nor the width need fill a vector.
//
// Compiled once per instruction set (Highway's foreach_target).

#if defined(WEIR_OPS_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_OPS_KERNELS_CPU_ATTENTION_INL_H_
#undef WEIR_OPS_KERNELS_CPU_ATTENTION_INL_H_
#else
#define WEIR_OPS_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <limits>
#include <type_traits>

#include "ops/kernels/cpu/simd-inl.h"
#include "ops/kernels/cpu/tile_product-inl.h"
#include "ops/kernels/shape/attention_shape.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {

constexpr float kLog2E = 1.44269504088896341f;

// Returns 2^x within 2 ulp for -125 <= x < 127, and 0 for smaller x. NaN stays NaN. Precondition: x
// is not above 127.
HWY_INLINE VF Exp2(VF x) {
  const DF d;
  const DI di;
  // Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits.
  const VF shift = hn::Set(d, 12582912.0f);
  VF shifted = hn::Add(x, shift);
  VF r = hn::Sub(x, hn::Sub(shifted, shift));
  // The polynomial interpolates at Chebyshev's nodes of |r| <= 1/2.
  VF p = hn::Set(d, 0.0013381302123889327f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00966636836528778f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.055503811687231064f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.2402234971523285f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931471824645996f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  auto exponent = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23));
  VF y = hn::Mul(p, hn::BitCast(d, exponent));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -125.0f)), hn::Zero(d), y);
}

// Loads rows of a tensor as f32, `stride` elements apart, and fills the padding of each row with
// zeros.
template <class T>
HWY_INLINE void LoadRows(const T* from, int64_t stride, int64_t rows, int64_t width, int64_t padded,
                         float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    MapInto(
        to + row * padded, width, [](VF v) HWY_ATTR { return v; }, from + row * stride);
    std::fill(to + row * padded + width, to + (row + 1) * padded, 0.0f);
  }
}

// Stores the rows back, times `factor`.
template <class T>
HWY_INLINE void StoreRows(const float* from, int64_t padded, int64_t rows, int64_t width,
                          float factor, T* to, int64_t stride) {
  const VF scale = hn::Set(DF(), factor);
  for (int64_t row = 0; row < rows; ++row) {
    MapInto(
        to + row * stride, width, [&](VF v) HWY_ATTR { return hn::Mul(v, scale); },
        from + row * padded);
  }
}

constexpr int64_t kNoWindow = std::numeric_limits<int64_t>::max() / 2;

// A Block is a tile of queries against a block of keys.
struct Block {
  int64_t queries;   // of the tile
  int64_t keys;      // of the block
  bool on_diagonal;  // queries from j on see key j
  // Queries below `hidden_from + j` see key j of the block; kNoWindow: all do.
  int64_t hidden_from = kNoWindow;

  int64_t vectors() const { return (queries + NumLanes() - 1) / NumLanes(); }
  // Returns the number of keys that the queries of a vector see.
  int64_t keys_seen(int64_t vector) const {
    return on_diagonal ? std::min(keys, (vector + 1) * NumLanes()) : keys;
  }
  int64_t keys_per_step() const { return on_diagonal ? NumLanes() : keys; }
  // Returns the first vector with a query that sees keys from `key` on. `key` is a multiple of
  // keys_per_step().
  int64_t first_vector(int64_t key) const { return on_diagonal ? key / NumLanes() : 0; }
};

// Sets scores[key][query] = rows[key] . columns[.][query] where a vector of queries sees the key.
HWY_INLINE void KeysTimesQueries(const Block& block, const float* rows, int64_t padded,
                                 int64_t width, const float* columns, float* scores) {
  for (int64_t key = 0; key < block.keys; key += block.keys_per_step()) {
    int64_t first = block.first_vector(key);
    if (first >= block.vectors()) break;
    Product({rows + key * padded, padded, 1}, {columns + first * NumLanes(), kAttentionTile},
            {scores + key * kAttentionTile + first * NumLanes(), kAttentionTile},
            std::min(block.keys_per_step(), block.keys - key), block.vectors() - first, width,
            Result::kOverwrite);
  }
}

// Adds to sums[.][query] the sum over keys of rows[key] * weights[key][query].
HWY_INLINE void WeightedKeys(const Block& block, const float* rows, int64_t padded, int64_t width,
                             const float* weights, float* sums) {
  for (int64_t key = 0; key < block.keys; key += block.keys_per_step()) {
    int64_t first = block.first_vector(key);
    if (first >= block.vectors()) break;
    Product({rows + key * padded, 1, padded},
            {weights + key * kAttentionTile + first * NumLanes(), kAttentionTile},
            {sums + first * NumLanes(), kAttentionTile}, width, block.vectors() - first,
            std::min(block.keys_per_step(), block.keys - key), Result::kAdd);
  }
}

// Adds to sums[key] the sum over queries of weights[key][query] * rows[query].
HWY_INLINE void WeightedQueries(const Block& block, const float* weights, const float* rows,
                                int64_t padded, float* sums) {
  for (int64_t key = 0; key < block.keys; key += block.keys_per_step()) {
    int64_t query = block.first_vector(key) * NumLanes();
    if (query >= block.queries) break;
    Product({weights + key * kAttentionTile + query, kAttentionTile, 1},
            {rows + query * padded, padded}, {sums + key * padded, padded},
            std::min(block.keys_per_step(), block.keys - key), padded / NumLanes(),
            block.queries - query, Result::kAdd);
  }
}

// Sets, on the diagonal, the scores of keys after the query to `hidden`.
HWY_INLINE void HideLaterKeys(const Block& block, int64_t vector, float hidden, float* scores) {
  if (!block.on_diagonal) return;
  const DF d;
  const int64_t lanes = NumLanes();
  for (int64_t key = vector * lanes; key < block.keys_seen(vector); ++key) {
    float* at = scores + key * kAttentionTile + vector * lanes;
    auto later = hn::FirstN(d, static_cast<size_t>(key - vector * lanes));
    hn::StoreU(hn::IfThenElse(later, hn::Set(d, hidden), hn::LoadU(d, at)), d, at);
  }
}

// Sets the scores of keys that have left the window of the query to `hidden`.
HWY_INLINE void HideEarlierKeys(const Block& block, int64_t vector, float hidden, float* scores) {
  if (block.hidden_from == kNoWindow) return;
  const DF d;
  const int64_t lanes = NumLanes();
  for (int64_t key = 0; key < block.keys_seen(vector); ++key) {
    const int64_t seen = block.hidden_from + key - vector * lanes;
    if (seen >= lanes) continue;
    float* at = scores + key * kAttentionTile + vector * lanes;
    const auto inside = hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(0, seen)));
    hn::StoreU(hn::IfThenElse(inside, hn::LoadU(d, at), hn::Set(d, hidden)), d, at);
  }
}

// Returns what is added to a score in units of log2: -inf where the key is hidden.
template <class T>
HWY_INLINE float AddedToScore(T mask) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  if constexpr (std::is_same_v<T, uint8_t>) {
    return mask != 0 ? 0.0f : kHidden;
  } else if constexpr (!std::is_same_v<T, float>) {
    return AddedToScore(ToFloat(mask));
  } else {
    return mask < kHidesBelow ? kHidden : mask * kLog2E;
  }
}

// Adds the mask of the block to its scores, the first query and key of which lie at `mask`.
template <class T>
HWY_INLINE void AddMaskAt(const AttentionMask& shape, const Block& block, const T* mask,
                          float* scores) {
  const DF d;
  for (int64_t key = 0; key < block.keys; ++key) {
    float* row = scores + key * kAttentionTile;
    const T* at = mask + key * shape.key_stride;
    if (shape.query_stride == 0) {
      const VF added = hn::Set(d, AddedToScore(*at));
      for (int64_t vector = 0; vector < block.vectors(); ++vector) {
        float* to = row + vector * NumLanes();
        hn::StoreU(hn::Add(hn::LoadU(d, to), added), d, to);
      }
      continue;
    }
    for (int64_t query = 0; query < block.queries; ++query)
      row[query] += AddedToScore(at[query * shape.query_stride]);
  }
}

// Adds the mask, which may be absent, to the scores of block `b` of a tile of one head.
HWY_INLINE void AddMask(const AttentionShape& shape, const void* mask, int64_t of_batch,
                        int64_t head, int64_t tile, int64_t b, const Block& block, float* scores) {
  const AttentionMask& of = shape.mask;
  if (!of.exists) return;
  const int64_t at = of_batch * of.batch_stride + head * of.head_stride +
                     tile * kAttentionTile * of.query_stride + b * kAttentionTile * of.key_stride;
  if (of.dtype == DType::kBool) {
    AddMaskAt(of, block, static_cast<const uint8_t*>(mask) + at, scores);
  } else {
    WithReal(of.dtype, [&](auto* type) HWY_ATTR {
      using T = std::remove_pointer_t<decltype(type)>;
      AddMaskAt(of, block, static_cast<const T*>(mask) + at, scores);
    });
  }
}

// Returns the block of keys `b` of a tile.
HWY_INLINE Block BlockOf(const AttentionShape& shape, int64_t tile, int64_t b) {
  Block block{shape.tile_queries(tile), shape.block_keys(b), shape.causal && b == tile};
  // The last query of the tile sees the first key of the block only if the window is long enough.
  const int64_t distance = (tile - b) * kAttentionTile;
  if (shape.window > 0 && distance + kAttentionTile > shape.window)
    block.hidden_from = shape.window - distance;
  return block;
}

}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#endif
