#include "ops/kernels/shape/indexing_shape.h"

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

int64_t Product(const Shape& shape, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t d = begin; d < end; ++d) product *= shape[d];
  return product;
}

// Returns `wide` with the sizes of `middle` for its axis.
Shape Replaced(const Shape& wide, size_t axis, const Shape& middle) {
  Shape all(wide.begin(), wide.begin() + static_cast<int64_t>(axis));
  all.insert(all.end(), middle.begin(), middle.end());
  all.insert(all.end(), wide.begin() + static_cast<int64_t>(axis) + 1, wide.end());
  return all;
}

bool IsAxis(int64_t axis, const TensorSlice& of) {
  return axis >= 0 && axis < static_cast<int64_t>(of.shape.size());
}

// `wide` is indexed along the axis.
IndexingShape ShapeAlong(const TensorSlice& wide, size_t axis) {
  IndexingShape shape;
  shape.outer = Product(wide.shape, 0, axis);
  shape.rows = wide.shape[axis];
  shape.first = wide.offset[axis];
  shape.inner = Product(wide.shape, axis + 1, wide.shape.size());
  return shape;
}

absl::StatusOr<IndexingShape> RowsShape(SpecCheck& check, const TensorSlice& wide,
                                        const TensorSlice& narrow, int64_t axis) {
  const TensorSlice& ids = check.in(1);
  check.Is(ids, DType::kI32, "ids").Expect(IsAxis(axis, wide), "an axis");
  if (!check.ok()) return check.status();
  const size_t at = static_cast<size_t>(axis);
  check.Expect(narrow.shape == Replaced(wide.shape, at, ids.shape),
               "the dimensions of ids in place of the axis");
  if (!check.ok()) return check.status();
  IndexingShape shape = ShapeAlong(wide, at);
  shape.count = ids.num_elements();
  shape.count_stride = 1;
  return shape;
}

absl::StatusOr<IndexingShape> ElementsShape(SpecCheck& check, const TensorSlice& wide,
                                            const TensorSlice& narrow, int64_t axis) {
  const TensorSlice& index = check.in(1);
  check.Is(index, DType::kI32, "index")
      .SameShape(index, narrow, "index and what it indexes")
      .Expect(IsAxis(axis, wide), "an axis");
  check.Expect(narrow.shape.size() == wide.shape.size(), "operands of one rank");
  if (!check.ok()) return check.status();
  const size_t at = static_cast<size_t>(axis);
  check.Expect(narrow.shape == Replaced(wide.shape, at, {narrow.shape[at]}),
               "equal sizes except along the axis");
  if (!check.ok()) return check.status();
  IndexingShape shape = ShapeAlong(wide, at);
  shape.count = narrow.shape[at];
  shape.outer_stride = shape.count * shape.inner;
  shape.count_stride = shape.inner;
  shape.inner_stride = 1;
  return shape;
}

}  // namespace

absl::StatusOr<IndexingShape> TakeShape(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1).SameType(check.in(0), check.out(0), "x and y");
  return RowsShape(check, check.in(0), check.out(0), spec.attrs.Int("axis"));
}

absl::StatusOr<IndexingShape> GatherShape(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1).SameType(check.in(0), check.out(0), "x and y");
  return ElementsShape(check, check.in(0), check.out(0), spec.attrs.Int("axis"));
}

absl::StatusOr<IndexingShape> SegmentSumShape(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1).Real(check.in(0), "x").Real(check.out(0), "y");
  return RowsShape(check, check.out(0), check.in(0), spec.attrs.Int("axis"));
}

absl::StatusOr<IndexingShape> ScatterAddShape(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1).Real(check.in(0), "x").Real(check.out(0), "y");
  return ElementsShape(check, check.out(0), check.in(0), spec.attrs.Int("axis"));
}

absl::StatusOr<IndexingShape> OneHotShape(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).Is(check.in(0), DType::kI32, "ids").Real(check.out(0), "y");
  check.MinRank(check.out(0), 1, "y");
  if (!check.ok()) return check.status();
  check.Expect(LeadingShape(check.out(0), 1) == check.in(0).shape, "y with the axes of ids");
  if (!check.ok()) return check.status();
  IndexingShape shape = ShapeAlong(check.out(0), check.out(0).shape.size() - 1);
  shape.count = 1;
  shape.outer_stride = 1;
  return shape;
}

}  // namespace weir::kernels
