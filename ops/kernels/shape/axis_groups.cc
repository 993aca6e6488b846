#include "ops/kernels/shape/axis_groups.h"

#include <algorithm>

namespace weir::kernels {
namespace {

bool IsReduced(const std::vector<int64_t>& axes, size_t axis) {
  return axes.empty() ||
         std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
}

}  // namespace

AxisGroups::AxisGroups(const Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<Group> groups;  // the fastest first
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] == 1) continue;
    Kind kind = IsReduced(axes, axis) ? Kind::kReduced : Kind::kKept;
    if (!groups.empty() && groups.back().kind == kind) {
      groups.back().size *= shape[axis];
    } else {
      groups.push_back(Group{shape[axis], stride, kind});
    }
    stride *= shape[axis];
  }
  if (groups.empty()) return;
  inner_ = groups[0].kind;
  row_ = groups[0].size;
  outer_.assign(groups.begin() + 1, groups.end());
  for (const Group& group : outer_) {
    (group.kind == Kind::kKept ? kept_ : reduced_).push_back(group);
    (group.kind == Kind::kKept ? num_kept_ : num_reduced_) *= group.size;
  }
}

int64_t AxisGroups::Start(const std::vector<Group>& groups, int64_t index) {
  int64_t start = 0;
  for (const Group& group : groups) {
    start += index % group.size * group.stride;
    index /= group.size;
  }
  return start;
}

int64_t AxisGroups::KeptIndexOf(int64_t i) const {
  int64_t kept = 0, factor = 1;
  for (const Group& group : outer_) {
    if (group.kind == Kind::kKept) {
      kept += i % group.size * factor;
      factor *= group.size;
    }
    i /= group.size;
  }
  return kept;
}

Shape KeptShape(const Shape& shape, const std::vector<int64_t>& axes) {
  Shape kept;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (!IsReduced(axes, axis)) kept.push_back(shape[axis]);
  }
  return kept;
}

bool LegalAxes(const Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return false;
  return sorted.empty() ||
         (sorted.front() >= 0 && sorted.back() < static_cast<int64_t>(shape.size()));
}

int64_t ReducedElements(const Shape& shape, const std::vector<int64_t>& axes) {
  int64_t product = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (IsReduced(axes, axis)) product *= shape[axis];
  }
  return product;
}

}  // namespace weir::kernels
