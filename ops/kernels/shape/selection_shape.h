// The local geometry of the ops that work along one whole axis in its order (top_k, argmax,
// cumsum), and the checks of their operands. Thread rule: pure functions and values.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

// x is [outer, n, inner], and the ops work along n. Results of top_k are [outer, k, inner]; k is 1
// otherwise.
struct SelectionShape {
  int64_t outer = 0, n = 0, inner = 0, k = 1;
};

// Each returns the shape of the op's operands; an error if they do not fit the op. A shard of top_k
// and argmax has the whole axis, or is empty elsewhere; k is at most n, and n is less than 2^31.
absl::StatusOr<SelectionShape> TopKShape(const KernelSpec& spec);
absl::StatusOr<SelectionShape> ArgmaxShape(const KernelSpec& spec);
absl::StatusOr<SelectionShape> CumsumShape(const KernelSpec& spec);

}  // namespace weir::kernels
