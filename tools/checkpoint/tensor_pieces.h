// Cuts a tensor into pieces that follow each other in row-major order, so that a command holds a
// piece of a tensor at a time. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor_slice.h"

namespace weir::checkpoint {

inline constexpr int64_t kPieceBytes = int64_t{4} << 20;

// Calls visit(piece) for pieces of `slice` of at most kPieceBytes, or of one element, in order;
// their bytes one after another are those of `slice`. Returns the first error of `visit`.
template <typename F>
absl::Status ForEachPiece(const TensorSlice& slice, F&& visit) {
  if (slice.num_elements() == 0) return absl::OkStatus();
  if (slice.bytes() <= kPieceBytes || slice.num_elements() == 1) return visit(slice);
  size_t axis = 0;
  while (slice.shape[axis] == 1) ++axis;
  const int64_t rows = std::max<int64_t>(1, kPieceBytes / (slice.bytes() / slice.shape[axis]));
  for (int64_t begin = 0; begin < slice.shape[axis]; begin += rows) {
    TensorSlice piece = slice;
    piece.offset[axis] += begin;
    piece.shape[axis] = std::min(rows, slice.shape[axis] - begin);
    WEIR_RETURN_IF_ERROR(ForEachPiece(piece, visit));
  }
  return absl::OkStatus();
}

}  // namespace weir::checkpoint
