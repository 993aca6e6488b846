#include "tools/weights/weight_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::weights {
namespace {

absl::Status Wrong(const std::string& reason) { return absl::InvalidArgumentError(reason); }

// A tensor, or a part of one, whose axes have strides of their own.
struct StridedView {
  Shape sizes;
  std::vector<int64_t> strides;
  int64_t base = 0;
};

StridedView RowMajor(const Shape& shape) {
  StridedView view{shape, std::vector<int64_t>(shape.size(), 1)};
  for (size_t axis = shape.size(); axis-- > 1;)
    view.strides[axis - 1] = view.strides[axis] * shape[axis];
  return view;
}

absl::Status Transpose(const std::vector<int>& order, StridedView* view) {
  if (order.empty()) return absl::OkStatus();
  if (order.size() != view->sizes.size())
    return Wrong(
        absl::StrCat("a transposition of ", order.size(), " axes, of ", ToText(view->sizes)));
  const StridedView from = *view;
  for (size_t axis = 0; axis < order.size(); ++axis) {
    view->sizes[axis] = from.sizes[order[axis]];
    view->strides[axis] = from.strides[order[axis]];
  }
  return absl::OkStatus();
}

// `wanted` is the size that the weight has along the axis of the cut; negative: not known.
absl::Status CutOut(const TensorSource& source, int64_t wanted, StridedView* view) {
  if (source.cut == TensorSource::Cut::kNone) return absl::OkStatus();
  const size_t axis = static_cast<size_t>(source.cut_axis);
  if (axis >= view->sizes.size())
    return Wrong(absl::StrCat("a cut along axis ", axis, ", of ", ToText(view->sizes)));
  int64_t begin = source.begin, size = source.size;
  const int64_t all = view->sizes[axis];
  if (source.cut == TensorSource::Cut::kPart) {
    if (all % source.size != 0)
      return Wrong(
          absl::StrCat(source.size, " equal parts of axis ", axis, ", of ", ToText(view->sizes)));
    size = all / source.size;
    begin = source.begin * size;
  } else if (size == 0) {
    if (wanted < 0)
      return Wrong("a range without a size, where the weight has another shape than its sources");
    size = wanted;
  }
  if (begin > all || size > all - begin)
    return Wrong(absl::StrCat("elements ", begin, " to ", begin + size, " of axis ", axis, ", of ",
                              ToText(view->sizes)));
  view->base += begin * view->strides[axis];
  view->sizes[axis] = size;
  return absl::OkStatus();
}

// Joins axes that lie as one, so that runs are long.
void JoinAxes(StridedView* view) {
  StridedView joined;
  joined.base = view->base;
  for (size_t axis = 0; axis < view->sizes.size(); ++axis) {
    if (view->sizes[axis] == 1) continue;
    const bool as_one =
        !joined.sizes.empty() && joined.strides.back() == view->strides[axis] * view->sizes[axis];
    if (as_one) {
      joined.sizes.back() *= view->sizes[axis];
      joined.strides.back() = view->strides[axis];
    } else {
      joined.sizes.push_back(view->sizes[axis]);
      joined.strides.push_back(view->strides[axis]);
    }
  }
  if (joined.sizes.empty()) {
    joined.sizes.push_back(1);
    joined.strides.push_back(1);
  }
  *view = std::move(joined);
}

absl::StatusOr<StridedView> ViewOf(const TensorSource& source, const Shape& tensor,
                                   int64_t wanted) {
  const Shape& seen = source.view.empty() ? tensor : source.view;
  if (NumElements(tensor) < 0 || NumElements(seen) != NumElements(tensor))
    return Wrong(absl::StrCat("a view ", ToText(seen), " of ", ToText(tensor)));
  StridedView view = RowMajor(seen);
  WEIR_RETURN_IF_ERROR(Transpose(source.transpose, &view));
  WEIR_RETURN_IF_ERROR(CutOut(source, wanted, &view));
  return view;
}

}  // namespace

absl::StatusOr<WeightLayout> WeightLayout::Make(const SourcesOfWeight& sources,
                                                const std::vector<Shape>& tensors,
                                                const Shape& weight) {
  WeightLayout layout;
  Shape joined;
  std::vector<Shape> sizes;
  const size_t join_axis = static_cast<size_t>(sources.axis);
  for (size_t k = 0; k < sources.from.size(); ++k) {
    const TensorSource& source = sources.from[k];
    const size_t cut_axis = static_cast<size_t>(source.cut_axis);
    const bool is_known = !sources.reshape && cut_axis < weight.size() &&
                          (sources.from.size() == 1 || cut_axis != join_axis);
    WEIR_ASSIGN_OR_RETURN(StridedView view,
                          ViewOf(source, tensors[k], is_known ? weight[cut_axis] : -1));
    if (k == 0) {
      joined = view.sizes;
      if (sources.from.size() > 1 && join_axis >= joined.size())
        return Wrong(
            absl::StrCat("sources joined along axis ", join_axis, ", of ", ToText(joined)));
    } else {
      Shape alike = view.sizes;
      if (alike.size() == joined.size()) alike[join_axis] = joined[join_axis];
      if (alike != joined)
        return Wrong(absl::StrCat("sources ", ToText(joined), " and ", ToText(view.sizes),
                                  " joined along axis ", join_axis));
      // Sizes of real tensors fit; a map may name one tensor many times.
      if (view.sizes[join_axis] > INT64_MAX - joined[join_axis])
        return Wrong("sources that are too large together");
      joined[join_axis] += view.sizes[join_axis];
    }
    sizes.push_back(view.sizes);
    JoinAxes(&view);
    layout.sources_.push_back({0, 0, view.base, view.sizes, view.strides});
  }
  const bool fits = sources.reshape ? NumElements(joined) == NumElements(weight) : joined == weight;
  if (!fits) return Wrong(ToText(joined));
  if (NumElements(weight) == 0) return layout;  // has no runs
  // A row holds the part of each source, one after the other.
  layout.row_ = 0;
  for (size_t k = 0; k < sizes.size(); ++k) {
    int64_t length = 1;
    for (size_t axis = sizes.size() > 1 ? join_axis : 0; axis < sizes[k].size(); ++axis)
      length *= sizes[k][axis];
    layout.sources_[k].begin = layout.row_;
    layout.sources_[k].length = length;
    layout.row_ += length;
  }
  return layout;
}

WeightLayout::Place WeightLayout::PlaceOf(int64_t position) const {
  const int64_t outer = position / row_, in_row = position % row_;
  // The last source that begins at or before the element; empty sources before it are passed over.
  const auto after =
      std::upper_bound(sources_.begin(), sources_.end(), in_row,
                       [](int64_t at, const Source& source) { return at < source.begin; });
  const Source& source = *(after - 1);
  int64_t rest = outer * source.length + (in_row - source.begin);
  Place place;
  place.source = static_cast<size_t>(&source - sources_.data());
  place.first = source.base;
  place.stride = source.strides.back();
  const int64_t in_last = rest % source.sizes.back();
  place.count = std::min(source.sizes.back() - in_last, source.begin + source.length - in_row);
  for (size_t axis = source.sizes.size(); axis-- > 0;) {
    place.first += rest % source.sizes[axis] * source.strides[axis];
    rest /= source.sizes[axis];
  }
  return place;
}

absl::StatusOr<Shape> TensorShapeFrom(const SourcesOfWeight& sources, size_t source,
                                      const Shape& weight) {
  const TensorSource& from = sources.from[source];
  if (!from.shape.empty()) return from.shape;
  // A range from the beginning that is as long as the weight is the whole of a tensor.
  const bool is_range =
      from.cut == TensorSource::Cut::kRange && (from.begin != 0 || from.size != 0);
  const bool is_hidden =
      sources.from.size() > 1 || sources.reshape || !from.view.empty() || is_range;
  if (is_hidden) return absl::FailedPreconditionError("");
  Shape seen = weight;
  if (from.cut == TensorSource::Cut::kPart) {
    const size_t axis = static_cast<size_t>(from.cut_axis);
    if (axis >= seen.size() || from.size > INT64_MAX / std::max<int64_t>(1, seen[axis]))
      return absl::FailedPreconditionError("");
    seen[axis] *= from.size;
  }
  if (from.transpose.empty()) return seen;
  if (from.transpose.size() != seen.size()) return absl::FailedPreconditionError("");
  Shape shape(seen.size());
  for (size_t axis = 0; axis < seen.size(); ++axis) shape[from.transpose[axis]] = seen[axis];
  return shape;
}

}  // namespace weir::weights
