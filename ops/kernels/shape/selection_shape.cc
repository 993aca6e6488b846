#include "ops/kernels/shape/selection_shape.h"

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

absl::StatusOr<SelectionShape> ShapeAlong(SpecCheck& check, int64_t axis) {
  const TensorSlice& x = check.in(0);
  check.Real(x, "x").Expect(axis >= 0 && axis < static_cast<int64_t>(x.shape.size()), "an axis");
  if (!check.ok()) return check.status();
  const size_t at = static_cast<size_t>(axis);
  SelectionShape shape;
  shape.outer = shape.inner = 1;
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (d < at) shape.outer *= x.shape[d];
    if (d > at) shape.inner *= x.shape[d];
  }
  shape.n = x.shape[at];
  check.Expect(shape.n == x.global_shape[at], "the whole of the axis");
  check.Expect(shape.n <= INT32_MAX, "at most 2^31 - 1 elements along the axis");
  if (!check.ok()) return check.status();
  return shape;
}

}  // namespace

absl::StatusOr<SelectionShape> TopKShape(const KernelSpec& spec) {
  const int64_t axis = spec.attrs.Int("axis");
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 2).SameType(check.in(0), check.out(0), "x and values");
  if (check.HasOut(1)) {
    check.Is(check.out(1), DType::kI32, "indices")
        .SameShape(check.out(1), check.out(0), "values and indices");
  }
  auto shape = ShapeAlong(check, axis);
  if (!shape.ok()) return shape;
  Shape expected = check.in(0).shape;
  shape->k = expected[static_cast<size_t>(axis)] = spec.attrs.Int("k");
  check.Expect(shape->k >= 1 && shape->k <= shape->n, "k from 1 to the size of the axis")
      .Expect(check.out(0).shape == expected, "values shaped like x, k long along the axis");
  if (!check.ok()) return check.status();
  return shape;
}

absl::StatusOr<SelectionShape> ArgmaxShape(const KernelSpec& spec) {
  const int64_t axis = spec.attrs.Int("axis");
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).Is(check.out(0), DType::kI32, "y");
  auto shape = ShapeAlong(check, axis);
  if (!shape.ok()) return shape;
  Shape expected = check.in(0).shape;
  expected.erase(expected.begin() + axis);
  check.Expect(check.out(0).shape == expected, "y shaped like x without the axis")
      .Expect(shape->n >= 1, "an element along the axis");
  if (!check.ok()) return check.status();
  return shape;
}

absl::StatusOr<SelectionShape> CumsumShape(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1)
      .Outputs(1, 1)
      .SameType(check.in(0), check.out(0), "x and y")
      .SameShape(check.in(0), check.out(0), "x and y");
  return ShapeAlong(check, spec.attrs.Int("axis"));
}

}  // namespace weir::kernels
