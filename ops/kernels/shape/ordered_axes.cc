#include "ops/kernels/shape/ordered_axes.h"

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

std::vector<OrderedAxis> OrderedAxes(const Shape& shape, const std::vector<int64_t>& perm) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  std::vector<OrderedAxis> axes;
  for (int64_t source : perm) {
    if (shape[source] == 1) continue;
    if (!axes.empty() && axes.back().stride == strides[source] * shape[source]) {
      axes.back() = OrderedAxis{axes.back().size * shape[source], strides[source]};
    } else {
      axes.push_back(OrderedAxis{shape[source], strides[source]});
    }
  }
  if (axes.empty()) axes.push_back(OrderedAxis{1, 1});
  return axes;
}

}  // namespace

absl::StatusOr<std::vector<OrderedAxis>> TransposedAxes(const KernelSpec& spec) {
  SpecCheck check(spec);
  const std::vector<int64_t> perm = spec.attrs.Ints("perm");
  check.Inputs(1, 1).Outputs(1, 1).SameType(check.in(0), check.out(0), "x and y");
  std::vector<bool> seen(check.in(0).shape.size(), false);
  Shape permuted;
  bool legal = perm.size() == seen.size();
  for (int64_t axis : perm) {
    legal = legal && axis >= 0 && axis < static_cast<int64_t>(seen.size()) && !seen[axis];
    if (!legal) break;
    seen[axis] = true;
    permuted.push_back(check.in(0).shape[axis]);
  }
  check.Expect(legal && permuted == check.out(0).shape, "y with the axes of x in the order perm");
  if (!check.ok()) return check.status();
  return OrderedAxes(check.in(0).shape, perm);
}

}  // namespace weir::kernels
