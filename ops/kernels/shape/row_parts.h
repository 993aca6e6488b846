// Slice, pad and concat see tensors as rows of the axes from the cut axis on. A row of the output
// consists of parts of the inputs' rows, and of zeros where no part lies.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

// A part of a row: `bytes` from offset `from` of the input's row to offset `to` of the output's.
struct RowPart {
  size_t input;
  int64_t from, to, bytes;
};

struct RowParts {
  int64_t num_rows = 0;
  std::vector<int64_t> in_row_bytes;  // per input
  int64_t out_row_bytes = 0;
  std::vector<RowPart> parts;  // in the order of `to`; none overlaps another
};

// Return what the op of the spec moves. kInvalidArgument unless the operands and attributes are
// those of the op.
absl::StatusOr<RowParts> SliceParts(const KernelSpec& spec);
absl::StatusOr<RowParts> PadParts(const KernelSpec& spec);
absl::StatusOr<RowParts> ConcatParts(const KernelSpec& spec);

}  // namespace weir::kernels
