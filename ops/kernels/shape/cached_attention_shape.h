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
  int64_t slots = 0;  // positions of the kept keys and values
  DType dtype = DType::kF32;
  int64_t window = 0;  // a query sees the last `window` positions up to its own; 0: all
  float scale = 1;     // of the scores

  int64_t heads_per_group() const { return groups == 0 ? 0 : heads / groups; }
};

// Reads the operands and attributes of attention_cached and checks the preconditions of Run. A
// result that is not OK is the status of a SpecCheck.
absl::StatusOr<CachedAttentionShape> ReadCachedAttention(const KernelSpec& spec);

}  // namespace weir::kernels
