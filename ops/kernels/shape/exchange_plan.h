// Reads and writes rectangles of tensors in row-major order, part by part, for all exchange
// kernels. Thread rule: values; a cursor belongs to one thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/tensor_slice.h"

namespace weir::kernels {

// The maximum number of axes of a rectangle after neighbours that lie contiguously were joined.
constexpr int kRectAxesMax = 8;

// A DenseRect is a rectangle [begin, end) of a dense row-major tensor. Its elements are numbered
// row-major from 0; runs of `run` elements are contiguous in memory.
class DenseRect {
 public:
  // Returns the contiguous range of `volume` elements from `first`.
  static DenseRect Flat(int64_t first, int64_t volume);
  // kInvalidArgument unless begin and end have the tensor's rank, are ordered and lie inside the
  // tensor, and at most kRectAxesMax axes remain after joining.
  static absl::StatusOr<DenseRect> Of(const Shape& shape, absl::Span<const int64_t> begin,
                                      absl::Span<const int64_t> end);

  int64_t volume() const { return volume_; }
  int64_t first() const { return first_; }  // the offset of element 0 in the tensor
  int64_t run() const { return run_; }
  // The axes outside a run, the slowest first: how many runs, and how far in the tensor.
  int num_axes() const { return num_axes_; }
  int64_t size(int axis) const { return sizes_[axis]; }
  int64_t stride(int axis) const { return strides_[axis]; }

 private:
  friend class RectCursor;
  int64_t volume_ = 0;
  int64_t first_ = 0;
  int64_t run_ = 0;
  int num_axes_ = 0;
  int64_t sizes_[kRectAxesMax] = {};
  int64_t strides_[kRectAxesMax] = {};
};

// A RectCursor walks a rectangle from a given element on.
class RectCursor {
 public:
  RectCursor(const DenseRect& rect, int64_t element);

  int64_t offset() const { return offset_; }    // in the tensor, of the next element
  int64_t contiguous() const { return left_; }  // elements from there to the end of the run
  // Precondition: n <= contiguous().
  void Advance(int64_t n);

 private:
  void Locate(int64_t run);

  const DenseRect& rect_;
  int64_t run_index_ = 0;
  int64_t offset_ = 0;
  int64_t left_ = 0;
  int64_t index_[kRectAxesMax] = {};
};

}  // namespace weir::kernels
