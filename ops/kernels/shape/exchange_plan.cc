#include "ops/kernels/shape/exchange_plan.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir::kernels {

DenseRect DenseRect::Flat(int64_t first, int64_t volume) {
  DenseRect rect;
  rect.volume_ = volume;
  rect.first_ = first;
  rect.run_ = volume;
  return rect;
}

absl::StatusOr<DenseRect> DenseRect::Of(const Shape& shape, absl::Span<const int64_t> begin,
                                        absl::Span<const int64_t> end) {
  const int rank = static_cast<int>(shape.size());
  bool inside = static_cast<int>(begin.size()) == rank && static_cast<int>(end.size()) == rank;
  for (int axis = 0; inside && axis < rank; ++axis) {
    inside = 0 <= begin[axis] && begin[axis] <= end[axis] && end[axis] <= shape[axis];
  }
  if (!inside) {
    return absl::InvalidArgumentError(absl::StrCat("the rectangle [", absl::StrJoin(begin, ", "),
                                                   "] to [", absl::StrJoin(end, ", "),
                                                   "] is not inside ", ToText(shape)));
  }
  DenseRect rect;
  rect.volume_ = rect.run_ = 1;
  int64_t stride = 1;
  bool whole_below = true;  // the axes below are covered whole, so that this one joins the run
  int num_axes = 0;
  int64_t sizes[kRectAxesMax], strides[kRectAxesMax];
  for (int axis = rank - 1; axis >= 0; --axis) {
    int64_t size = end[axis] - begin[axis];
    rect.first_ += begin[axis] * stride;
    rect.volume_ *= size;
    if (whole_below) {
      rect.run_ *= size;
      whole_below = size == shape[axis];
    } else if (num_axes > 0 && strides[num_axes - 1] * sizes[num_axes - 1] == stride) {
      sizes[num_axes - 1] *= size;
    } else if (size != 1) {
      if (num_axes == kRectAxesMax) {
        return absl::InvalidArgumentError(absl::StrCat("a rectangle of ", ToText(shape),
                                                       " has more than ", kRectAxesMax,
                                                       " axes that do not join"));
      }
      sizes[num_axes] = size;
      strides[num_axes++] = stride;
    }
    stride *= shape[axis];
  }
  rect.num_axes_ = num_axes;
  for (int i = 0; i < num_axes; ++i) {
    rect.sizes_[i] = sizes[num_axes - 1 - i];
    rect.strides_[i] = strides[num_axes - 1 - i];
  }
  return rect;
}

RectCursor::RectCursor(const DenseRect& rect, int64_t element) : rect_(rect) {
  if (element >= rect.volume_) return;
  Locate(element / rect.run_);
  int64_t into_run = element % rect.run_;
  offset_ += into_run;
  left_ = rect.run_ - into_run;
}

void RectCursor::Locate(int64_t run) {
  offset_ = rect_.first_;
  for (int axis = rect_.num_axes_ - 1; axis >= 0; --axis) {
    index_[axis] = run % rect_.sizes_[axis];
    run /= rect_.sizes_[axis];
    offset_ += index_[axis] * rect_.strides_[axis];
  }
  left_ = rect_.run_;
}

void RectCursor::Advance(int64_t n) {
  offset_ += n;
  left_ -= n;
  if (left_ > 0) return;
  // Finds the next run by counting up the outer axes. Past the last run the cursor stays at its
  // start.
  offset_ -= rect_.run_;
  for (int axis = rect_.num_axes_ - 1; axis >= 0; --axis) {
    offset_ += rect_.strides_[axis];
    if (++index_[axis] < rect_.sizes_[axis]) break;
    offset_ -= rect_.sizes_[axis] * rect_.strides_[axis];
    index_[axis] = 0;
  }
  left_ = rect_.run_;
}

}  // namespace weir::kernels
