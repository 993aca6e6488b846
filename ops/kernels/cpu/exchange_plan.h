// Rectangles of tensors read and written in row-major order, part by part: what the
// exchange kernels do, without knowing which kernel. Thread rule: values; a cursor
// belongs to one thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/tensor_slice.h"

namespace weir {

// Axes of a rectangle after neighbours that lie contiguously were joined.
constexpr int kRectAxesMax = 8;

// A rectangle [begin, end) of a dense row-major tensor. Its elements are numbered
// row-major from 0; runs of `run` elements are contiguous in memory.
class Rect {
 public:
  // The contiguous range of `volume` elements from `first`.
  static Rect Flat(int64_t first, int64_t volume);
  // kInvalidArgument unless begin and end are of the tensor's rank, ordered and inside it,
  // and at most kRectAxesMax axes remain after joining.
  static absl::StatusOr<Rect> Of(const Shape& shape, absl::Span<const int64_t> begin,
                                 absl::Span<const int64_t> end);

  int64_t volume() const { return volume_; }

 private:
  friend class RectCursor;
  int64_t volume_ = 0;
  int64_t first_ = 0;  // offset of element 0 in the tensor
  int64_t run_ = 0;
  // Outer axes, the slowest first; the run is the innermost, not listed.
  int num_axes_ = 0;
  int64_t sizes_[kRectAxesMax] = {};
  int64_t strides_[kRectAxesMax] = {};
};

// Walks a rectangle from some element on.
class RectCursor {
 public:
  RectCursor(const Rect& rect, int64_t element);

  int64_t offset() const { return offset_; }    // in the tensor, of the next element
  int64_t contiguous() const { return left_; }  // elements from there to the end of the run
  // n <= contiguous().
  void Advance(int64_t n);

 private:
  void Locate(int64_t run);

  const Rect& rect_;
  int64_t run_index_ = 0;
  int64_t offset_ = 0;
  int64_t left_ = 0;
  int64_t index_[kRectAxesMax] = {};
};

}  // namespace weir
