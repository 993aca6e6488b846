#include "tools/onnx/shapes.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir::onnx {
namespace {

// Returns the axes of a node, sorted, each once: an attribute, or an operand.
std::vector<int64_t> AxesOf(Translation& t, int operand, int rank) {
  std::vector<int64_t> axes = t.HasAttr("axes") ? t.Ints("axes") : std::vector<int64_t>{};
  if (!t.HasAttr("axes") && t.Has(operand)) axes = t.KnownInts(operand);
  for (int64_t& axis : axes) axis = t.Axis(axis, rank);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    t.Fail("an axis that is named twice");
  return axes;
}

std::vector<int64_t> TargetOfReshape(Translation& t, const std::vector<int64_t>& shape) {
  std::vector<int64_t> to = t.KnownInts(1);
  if (to.size() > kRankMax) t.Fail("a shape of too many dimensions");
  int64_t known = 1;
  int free = -1;
  for (size_t d = 0; t.ok() && d < to.size(); ++d) {
    if (to[d] == 0 && t.Int("allowzero", 0) == 0) {
      if (d >= shape.size()) t.Fail("a size of 0 where the operand has no dimension");
      to[d] = t.ok() ? shape[d] : 1;
    }
    if (to[d] == -1 && free < 0) {
      free = static_cast<int>(d);
    } else if (to[d] < 1 || known > std::numeric_limits<int64_t>::max() / to[d]) {
      t.Fail(absl::StrCat("a reshape to [", absl::StrJoin(to, ", "), "]"));
    } else {
      known *= to[d];
    }
  }
  if (t.ok() && free >= 0) to[free] = Count(shape) / known;
  return to;
}

}  // namespace

std::vector<int64_t> Broadcast(Translation& t, const std::vector<int64_t>& a,
                               const std::vector<int64_t>& b) {
  if (a.size() > kRankMax || b.size() > kRankMax) {
    t.Fail("a shape of too many dimensions");
    return {};
  }
  std::vector<int64_t> shape(std::max(a.size(), b.size()));
  for (size_t d = 1; d <= shape.size(); ++d) {
    const int64_t of_a = d <= a.size() ? a[a.size() - d] : 1,
                  of_b = d <= b.size() ? b[b.size() - d] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      t.Fail(absl::StrCat("shapes [", absl::StrJoin(a, ", "), "] and [", absl::StrJoin(b, ", "),
                          "], which do not repeat to one shape"));
    }
    shape[shape.size() - d] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

std::vector<int64_t> Strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

BroadcastIndex::BroadcastIndex(const std::vector<int64_t>& part, const std::vector<int64_t>& whole)
    : whole_(whole),
      whole_strides_(Strides(whole)),
      part_strides_(whole.size(), 0),
      same_(part == whole) {
  const std::vector<int64_t> strides = Strides(part);
  for (size_t d = 0; d < part.size(); ++d) {
    if (part[d] != 1) part_strides_[whole.size() - part.size() + d] = strides[d];
  }
}

int64_t BroadcastIndex::operator()(int64_t place) const {
  if (same_) return place;
  int64_t result = 0;
  for (size_t d = 0; d < whole_.size(); ++d)
    result += place / whole_strides_[d] % whole_[d] * part_strides_[d];
  return result;
}

std::vector<int64_t> PermutationOf(Translation& t, int rank) {
  std::vector<int64_t> perm = t.Ints("perm");
  if (!t.HasAttr("perm")) {
    perm.resize(rank);
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t d = 0; d < sorted.size(); ++d) {
    if (sorted[d] != static_cast<int64_t>(d))
      t.Fail("an order of axes that does not name each axis once");
  }
  if (static_cast<int>(perm.size()) != rank)
    t.Fail("an order of axes that does not name each axis once");
  return perm;
}

std::vector<int64_t> ReshapedShape(Translation& t, const std::vector<int64_t>& shape) {
  const std::string& op = t.node().op();
  const auto rank = static_cast<int>(shape.size());
  std::vector<int64_t> to;
  if (op == "Reshape") return TargetOfReshape(t, shape);
  if (op == "Flatten") {
    const int64_t wanted = t.Int("axis", 1);
    const int axis = wanted == rank ? rank : t.Axis(wanted, rank);
    if (!t.ok()) return {};
    to = {Count({shape.begin(), shape.begin() + axis}), Count({shape.begin() + axis, shape.end()})};
    return to;
  }
  const bool unsqueeze = op == "Unsqueeze";
  const size_t named = t.HasAttr("axes") ? t.Ints("axes").size()
                       : t.Has(1)        ? t.KnownInts(1).size()
                                         : 0;
  if (named > 64) t.Fail("too many axes");
  const std::vector<int64_t> axes = AxesOf(t, 1, unsqueeze ? rank + static_cast<int>(named) : rank);
  if (!t.ok()) return {};
  const auto is_named = [&](int64_t d) { return std::binary_search(axes.begin(), axes.end(), d); };
  if (unsqueeze) {
    int next = 0;
    for (int d = 0; d < rank + static_cast<int>(axes.size()); ++d)
      to.push_back(is_named(d) ? 1 : shape[next++]);
    return to;
  }
  for (int d = 0; d < rank; ++d) {
    const bool leaves = axes.empty() ? shape[d] == 1 : is_named(d);
    if (leaves && shape[d] != 1)
      t.Fail(absl::StrCat("dimension ", d, " of size ", shape[d], " squeezed"));
    if (!leaves) to.push_back(shape[d]);
  }
  return to;
}

std::vector<std::vector<int64_t>> SliceIndices(Translation& t, const std::vector<int64_t>& shape) {
  const auto rank = static_cast<int>(shape.size());
  const bool by_attributes = t.HasAttr("starts");
  const std::vector<int64_t> starts = by_attributes ? t.Ints("starts") : t.KnownInts(1);
  const std::vector<int64_t> ends = by_attributes ? t.Ints("ends") : t.KnownInts(2);
  std::vector<int64_t> axes = by_attributes ? t.Ints("axes")
                              : t.Has(3)    ? t.KnownInts(3)
                                            : std::vector<int64_t>{};
  std::vector<int64_t> steps = !by_attributes && t.Has(4) ? t.KnownInts(4) : std::vector<int64_t>{};
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    t.Fail("starts, ends, axes and steps of different lengths");
  if (!t.ok()) return {};
  std::vector<std::vector<int64_t>> taken(rank);
  for (int d = 0; d < rank; ++d) {
    if (shape[d] > kFoldedElementsMax) t.Fail("a dimension that is too long to be sliced");
    if (!t.ok()) return {};
    taken[d].resize(shape[d]);
    std::iota(taken[d].begin(), taken[d].end(), 0);
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis = t.Axis(axes[i], rank);
    if (steps[i] == 0) t.Fail("a step of 0");
    if (!t.ok()) return {};
    const int64_t size = shape[axis];
    const bool forward = steps[i] > 0;
    const auto clamped = [&](int64_t at) {
      at = at < 0 ? at + size : at;
      return forward ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
    };
    const int64_t begin = clamped(starts[i]), end = clamped(ends[i]);
    const int64_t step = std::clamp<int64_t>(steps[i], -size - 1, size + 1);
    taken[axis].clear();
    for (int64_t at = begin; forward ? at < end : at > end; at += step) taken[axis].push_back(at);
  }
  return taken;
}

ReducedAxes AxesOfReduction(Translation& t, int rank) {
  ReducedAxes reduced;
  reduced.axes = AxesOf(t, 1, rank);
  reduced.keep = t.Int("keepdims", 1) != 0;
  reduced.none = reduced.axes.empty() && t.Int("noop_with_empty_axes", 0) != 0;
  if (reduced.axes.empty() && !reduced.none) {
    reduced.axes.resize(rank);
    std::iota(reduced.axes.begin(), reduced.axes.end(), 0);
  }
  return reduced;
}

}  // namespace weir::onnx
