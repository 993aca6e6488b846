// An AttentionShape holds the sizes of one attention call, and the cut of the call into tiles of
// queries and blocks of keys. Attention and its gradient share this class on every device.
//
// Thread rule: value.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/pieces.h"
#include "runtime/base/dtype.h"

namespace weir::kernels {

// Queries of a tile and keys of a block. Both are equal, so that a causal diagonal runs from corner
// to corner of one block.
constexpr int64_t kAttentionTile = 64;

// An AttentionMask holds how the mask of one call lies in memory: the distances, in elements, from
// a batch, a head, a query or a key to the next; 0 where the mask repeats.
struct AttentionMask {
  bool exists = false;
  DType dtype = DType::kBool;  // kBool: which keys are seen; else what is added to the scores
  int64_t batch_stride = 0, head_stride = 0, query_stride = 0, key_stride = 0;
};

// A number below this one, added to a score, hides the key. So a query from which all keys are
// hidden is known, however the keys are hidden: lse has too few digits for such a score.
constexpr float kHidesBelow = -1e5f;

struct AttentionShape {
  int64_t batch = 0, length = 0, heads = 0, groups = 0, width = 0;
  int64_t keys = 0;  // positions of k and v; `length` if causal
  DType dtype = DType::kF32;
  bool causal = true;
  int64_t window = 0;  // query i sees keys from i - window + 1 on; 0: all
  float scale = 1;     // of the scores
  AttentionMask mask;

  int64_t heads_per_group() const { return groups == 0 ? 0 : heads / groups; }
  int64_t num_tiles() const { return Pieces{length, kAttentionTile}.count(); }
  int64_t tile_queries(int64_t tile) const { return Pieces{length, kAttentionTile}.length(tile); }
  int64_t block_keys(int64_t block) const { return Pieces{keys, kAttentionTile}.length(block); }
  // A tile of queries sees the blocks of keys from first_block up to, not including, end_block.
  int64_t first_block(int64_t tile) const {
    return window == 0 ? 0
                       : std::max<int64_t>(0, tile * kAttentionTile - window + 1) / kAttentionTile;
  }
  int64_t end_block(int64_t tile) const {
    return causal ? tile + 1 : Pieces{keys, kAttentionTile}.count();
  }
  // Both are whole vectors of every instruction set, and whole cache lines.
  int64_t padded_width() const { return RoundUp(width, 16); }
  // Returns the first element of a row of q, or of k and v.
  int64_t QueryBegin(int64_t of_batch, int64_t position, int64_t head) const {
    return ((of_batch * length + position) * heads + head) * width;
  }
  int64_t KeyBegin(int64_t of_batch, int64_t position, int64_t group) const {
    return ((of_batch * keys + position) * groups + group) * width;
  }
  // Returns the multiply-adds of the scores of one head, about.
  int64_t head_products() const {
    const int64_t seen = causal ? (length + 1) / 2 : keys;
    return length * (window > 0 ? std::min(window, seen) : seen) * width;
  }
};

// Reads the operands and attributes of attention, or of its gradient, and checks the preconditions
// of Run. A result that is not OK is the status of a SpecCheck.
absl::StatusOr<AttentionShape> ReadAttention(const KernelSpec& spec);
absl::StatusOr<AttentionShape> ReadAttentionGrad(const KernelSpec& spec);

}  // namespace weir::kernels
