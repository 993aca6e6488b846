// AttentionShape: the sizes of one attention call and how it is cut into tiles of
// queries and blocks of keys, shared by attention and its gradient.
//
// Inside a tile everything is held transposed, a query to a lane: scores are
// [keys, queries] and results [width, queries]. Maxima and sums over keys are then sums
// of vectors, and neither the number of keys nor the width need fill a vector.
// Thread rule: value.
#pragma once

#include <cstdint>

#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/spec_check.h"
#include "runtime/base/dtype.h"

namespace weir {

// Queries of a tile and keys of a block. Equal, so that a causal diagonal runs from
// corner to corner of one block.
constexpr int64_t kAttentionTile = 64;

struct AttentionShape {
  int64_t batch = 0, length = 0, heads = 0, groups = 0, width = 0;
  DType dtype = DType::kF32;
  bool causal = true;
  float scale = 1;  // of the scores

  int64_t heads_per_group() const { return groups == 0 ? 0 : heads / groups; }
  int64_t num_tiles() const { return Pieces{length, kAttentionTile}.count(); }
  int64_t tile_queries(int64_t tile) const { return Pieces{length, kAttentionTile}.length(tile); }
  // Blocks of keys that a tile of queries sees.
  int64_t num_blocks(int64_t tile) const { return causal ? tile + 1 : num_tiles(); }
  // Whole vectors of every instruction set, and whole cache lines.
  int64_t padded_width() const { return RoundUp(width, 16); }
  int64_t padded_length() const { return RoundUp(length, kAttentionTile); }
  // First element of a row of q (heads = heads) or of k and v (heads = groups).
  int64_t RowBegin(int64_t of_batch, int64_t position, int64_t head, int64_t of_heads) const {
    return ((of_batch * length + position) * of_heads + head) * width;
  }
  // Multiply-adds of the scores of one head.
  int64_t head_products() const { return length * (causal ? (length + 1) / 2 : length) * width; }
};

// Reads q, k and v (inputs 0 to 2) and the attributes; expects what Run relies on.
AttentionShape CheckAttention(const KernelSpec& spec, SpecCheck& check);

}  // namespace weir
