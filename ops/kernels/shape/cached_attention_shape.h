// A CachedAttentionShape holds the sizes of one call of attention_cached on any device.
// Thread rule: value.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/kernels/kernel.h"
#include "runtime/base/dtype.h"

namespace weir::kernels {

struct CachedAttentionShape {
  int64_t batch = 0, length = 0, heads = 0, groups = 0, width = 0;
  int64_t entries = 0;     // of the table of each row
  int64_t page_size = 0;   // positions of a page
  int64_t first_page = 0;  // of those that this part of the pool has
  int64_t num_pages = 0;   // likewise
  DType dtype = DType::kF32;
  int64_t window = 0;  // a query sees the last `window` positions up to its own; 0: all
  float scale = 1;     // of the scores

  int64_t slots() const { return entries * page_size; }  // positions that a row can have
  int64_t heads_per_group() const { return groups == 0 ? 0 : heads / groups; }
};

// Reads the operands and attributes of attention_cached and checks the preconditions of Run. A
// result that is not OK is the status of a SpecCheck.
absl::StatusOr<CachedAttentionShape> ReadCachedAttention(const KernelSpec& spec);

}  // namespace weir::kernels
