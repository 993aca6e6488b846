// The local geometry of the ops that read and write at the places that indices give (take, gather,
// segment_sum, scatter_add, one_hot, and their gradients), and the checks of their operands. Thread
// rule: pure functions and values.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

// The wide operand is [outer, rows, inner] and is indexed along its rows, of which this shard has
// [first, first + rows). The narrow operand is [outer, count, inner]. The index of element (o, i,
// j) of the narrow operand is index[o * outer_stride + i * count_stride + j * inner_stride]. An
// index outside the shard's rows stands for no row.
struct IndexingShape {
  int64_t outer = 0, rows = 0, first = 0, count = 0, inner = 0;
  int64_t outer_stride = 0, count_stride = 0, inner_stride = 0;

  // True if one index selects a whole row of `inner` elements.
  bool selects_rows() const { return inner_stride == 0; }
};

// Each returns the shape of the op's operands; an error if they do not fit the op.
absl::StatusOr<IndexingShape> TakeShape(const KernelSpec& spec);
absl::StatusOr<IndexingShape> GatherShape(const KernelSpec& spec);
absl::StatusOr<IndexingShape> SegmentSumShape(const KernelSpec& spec);
absl::StatusOr<IndexingShape> ScatterAddShape(const KernelSpec& spec);
// The wide operand is y, [outer = samples, rows = classes, inner = 1], and count is 1.
absl::StatusOr<IndexingShape> OneHotShape(const KernelSpec& spec);

}  // namespace weir::kernels
