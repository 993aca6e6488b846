#include "ops/kernels/shape/row_parts.h"

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

int64_t ProductBefore(const Shape& shape, int64_t axis) {
  int64_t product = 1;
  for (int64_t i = 0; i < axis; ++i) product *= shape[i];
  return product;
}
int64_t ProductFrom(const Shape& shape, int64_t axis) {
  int64_t product = 1;
  for (size_t i = axis; i < shape.size(); ++i) product *= shape[i];
  return product;
}

// Checks that all sizes agree but that of `axis`.
void CheckAlong(SpecCheck* check, const TensorSlice& a, const TensorSlice& b, int64_t axis) {
  check->SameType(a, b, "all operands");
  check->Expect(
      axis >= 0 && axis < static_cast<int64_t>(a.shape.size()) && a.shape.size() == b.shape.size(),
      "an axis of its operands");
  if (!check->ok()) return;
  Shape like = b.shape;
  like[axis] = a.shape[axis];
  check->Expect(like == a.shape, "operands that differ along the axis only");
}

enum class Cut : uint8_t { kSlice, kPad };

absl::StatusOr<RowParts> CutParts(Cut cut, const KernelSpec& spec) {
  SpecCheck check(spec);
  const int64_t axis = spec.attrs.Int("axis"), begin = spec.attrs.Int("begin");
  check.Inputs(1, 1).Outputs(1, 1);
  CheckAlong(&check, check.in(0), check.out(0), axis);
  if (!check.ok()) return check.status();
  const TensorSlice& large = cut == Cut::kSlice ? check.in(0) : check.out(0);
  const TensorSlice& small = cut == Cut::kSlice ? check.out(0) : check.in(0);
  check.Expect(begin >= 0 && begin + small.shape[axis] <= large.shape[axis],
               "begin and size inside the axis");
  check.Expect(large.shape[axis] == large.global_shape[axis], "a whole axis to cut");
  if (!check.ok()) return check.status();
  const int64_t size = SizeOf(check.in(0).dtype);
  const int64_t small_bytes = ProductFrom(small.shape, axis) * size,
                large_bytes = ProductFrom(large.shape, axis) * size;
  const int64_t at = begin * ProductFrom(large.shape, axis + 1) * size;
  const bool slice = cut == Cut::kSlice;
  RowPart part{0, slice ? at : 0, slice ? 0 : at, small_bytes};
  return RowParts{ProductBefore(small.shape, axis),
                  {slice ? large_bytes : small_bytes},
                  slice ? small_bytes : large_bytes,
                  {part}};
}

}  // namespace

absl::StatusOr<RowParts> SliceParts(const KernelSpec& spec) { return CutParts(Cut::kSlice, spec); }
absl::StatusOr<RowParts> PadParts(const KernelSpec& spec) { return CutParts(Cut::kPad, spec); }

absl::StatusOr<RowParts> ConcatParts(const KernelSpec& spec) {
  SpecCheck check(spec);
  const int64_t axis = spec.attrs.Int("axis");
  const int num_inputs = static_cast<int>(spec.inputs.size());
  check.Inputs(num_inputs, num_inputs).Outputs(1, 1).Expect(num_inputs > 0, "an input");
  std::vector<RowPart> parts;
  std::vector<int64_t> row_bytes;
  int64_t to = 0;
  for (int i = 0; i < num_inputs; ++i) {
    CheckAlong(&check, check.in(i), check.out(0), axis);
    if (!check.ok()) return check.status();
    row_bytes.push_back(ProductFrom(check.in(i).shape, axis) * SizeOf(check.in(i).dtype));
    parts.push_back(RowPart{static_cast<size_t>(i), 0, to, row_bytes.back()});
    to += row_bytes.back();
  }
  const int64_t out_bytes = ProductFrom(check.out(0).shape, axis) * SizeOf(check.out(0).dtype);
  check.Expect(to == out_bytes, "an output as long as its inputs together");
  if (!check.ok()) return check.status();
  return RowParts{ProductBefore(check.out(0).shape, axis), row_bytes, out_bytes, parts};
}

}  // namespace weir::kernels
