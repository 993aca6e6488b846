// An AttentionShape holds the sizes of one attention call, and the cut of the call into tiles of
// queries and blocks of keys. Attention and its gradient share this class.
//
// Inside a tile everything is held transposed, a query to a lane: scores are [keys, queries] and
// results [width, queries]. Maxima and sums over keys then combine whole vectors, and neither the
// number of keys nor the width need fill a vector.
// Thread rule: value.
#pragma once

#include <cstdint>

#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/spec_check.h"
#include "runtime/base/dtype.h"

namespace weir::kernels {

// Queries of a tile and keys of a block. Both are equal, so that a causal diagonal runs from corner
// to corner of one block.
constexpr int64_t kAttentionTile = 64;

struct AttentionShape {
  int64_t batch = 0, length = 0, heads = 0, groups = 0, width = 0;
  DType dtype = DType::kF32;
  bool causal = true;
  float scale = 1;  // of the scores

  int64_t heads_per_group() const { return groups == 0 ? 0 : heads / groups; }
  int64_t num_tiles() const { return Pieces{length, kAttentionTile}.count(); }
  int64_t tile_queries(int64_t tile) const { return Pieces{length, kAttentionTile}.length(tile); }
  // Returns the blocks of keys that a tile of queries sees.
  int64_t num_blocks(int64_t tile) const { return causal ? tile + 1 : num_tiles(); }
  // Both are whole vectors of every instruction set, and whole cache lines.
  int64_t padded_width() const { return RoundUp(width, 16); }
  int64_t padded_length() const { return RoundUp(length, kAttentionTile); }
  // Returns the first element of a row of q (heads = heads) or of k and v (heads = groups).
  int64_t RowBegin(int64_t of_batch, int64_t position, int64_t head, int64_t of_heads) const {
    return ((of_batch * length + position) * of_heads + head) * width;
  }
  // Returns the multiply-adds of the scores of one head.
  int64_t head_products() const { return length * (causal ? (length + 1) / 2 : length) * width; }
};

// Reads q, k and v (inputs 0 to 2) and the attributes, and checks the preconditions of Run.
AttentionShape CheckAttention(const KernelSpec& spec, SpecCheck& check);

}  // namespace weir::kernels
