// Kernels that only move elements: reshape, transpose, slice, pad, concat, expand. All are
// strided copies: of a box of the output, each element from its place in the input.
#include <cstring>

#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/spec_check.h"
#include "ops/kernels/kernel.h"

namespace weir {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

Shape RowMajorStrides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// Copies a box of `shape` elements between two strided places; stride 0 repeats.
struct StridedCopy {
  Shape shape, from_strides, to_strides;
  int64_t from_begin = 0, to_begin = 0;
  int64_t element_bytes = 4;

  int64_t rows() const {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
    return rows;
  }
  int64_t row_elements() const { return shape.empty() ? 1 : shape.back(); }

  template <typename T>
  void Row(int64_t row, const T* from, T* to) const {
    int64_t f = from_begin, t = to_begin;
    for (size_t d = shape.size(); d-- > 0;) {
      if (d + 1 == shape.size()) continue;
      int64_t index = row % shape[d];
      row /= shape[d];
      f += index * from_strides[d];
      t += index * to_strides[d];
    }
    int64_t n = row_elements();
    int64_t fs = shape.empty() ? 1 : from_strides.back(), ts = shape.empty() ? 1 : to_strides.back();
    if (fs == 1 && ts == 1) {
      std::memcpy(to + t, from + f, n * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) to[t + i * ts] = from[f + i * fs];
    }
  }

  void Run(ThreadTeam* team, const void* from, void* to) const {
    if (NumElements(shape) == 0) return;
    Pieces pieces = Pieces::OfRows(rows(), row_elements(), kLightPiece);
    team->For(pieces.count(), [&](int64_t piece) {
      for (int64_t row = pieces.begin(piece); row < pieces.end(piece); ++row) {
        if (element_bytes == 2) {
          Row(row, static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to));
        } else {
          Row(row, static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to));
        }
      }
    });
  }
};

// One copy per input into the one output.
class ReorderKernel final : public Kernel {
 public:
  ReorderKernel(std::vector<StridedCopy> copies, int64_t zero_bytes) : copies_(std::move(copies)), zero_bytes_(zero_bytes) {}

  void Run(const KernelArgs& args) override {
    if (zero_bytes_ > 0) std::memset(args.outputs[0], 0, zero_bytes_);
    for (size_t i = 0; i < copies_.size(); ++i) copies_[i].Run(args.team, args.inputs[i], args.outputs[0]);
  }

 private:
  const std::vector<StridedCopy> copies_;
  const int64_t zero_bytes_;  // of the output, before copying
};

KernelOr Make(std::vector<StridedCopy> copies, int64_t zero_bytes = 0) {
  return std::make_unique<ReorderKernel>(std::move(copies), zero_bytes);
}

StridedCopy CopyOf(const TensorSlice& like) {
  StridedCopy copy;
  copy.shape = like.shape;
  copy.from_strides = copy.to_strides = RowMajorStrides(like.shape);
  copy.element_bytes = SizeOf(like.dtype);
  return copy;
}

SpecCheck OneToOne(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).SameType(check.in(0), check.out(0), "x and y");
  return check;
}

KernelOr MakeReshape(const KernelSpec& spec) {
  SpecCheck check = OneToOne(spec);
  check.Expect(check.in(0).num_elements() == check.out(0).num_elements(), "x and y of as many elements");
  if (!check.ok()) return check.status();
  StridedCopy copy;
  copy.shape = {check.in(0).num_elements()};
  if (copy.shape[0] > kLightPiece && copy.shape[0] % 1024 == 0) copy.shape = {copy.shape[0] / 1024, 1024};
  copy.from_strides = copy.to_strides = RowMajorStrides(copy.shape);
  copy.element_bytes = SizeOf(check.in(0).dtype);
  return Make({copy});
}

KernelOr MakeTranspose(const KernelSpec& spec) {
  SpecCheck check = OneToOne(spec);
  std::vector<int64_t> perm = spec.attrs.Ints("perm");
  const TensorSlice& x = check.in(0);
  const TensorSlice& y = check.out(0);
  check.Expect(perm.size() == x.shape.size() && perm.size() == y.shape.size(), "perm with one entry per axis");
  for (size_t d = 0; check.ok() && d < perm.size(); ++d) {
    check.Expect(perm[d] >= 0 && perm[d] < static_cast<int64_t>(perm.size()) && x.shape[perm[d]] == y.shape[d], "y's axes permuted from x's");
  }
  if (!check.ok()) return check.status();
  StridedCopy copy = CopyOf(y);
  Shape strides = RowMajorStrides(x.shape);
  for (size_t d = 0; d < perm.size(); ++d) copy.from_strides[d] = strides[perm[d]];
  return Make({copy});
}

// The box [begin, begin + small) of axis `axis` of the larger of two tensors.
absl::StatusOr<StridedCopy> BoxCopy(const KernelSpec& spec, bool large_is_input) {
  SpecCheck check = OneToOne(spec);
  const TensorSlice& large = large_is_input ? check.in(0) : check.out(0);
  const TensorSlice& small = large_is_input ? check.out(0) : check.in(0);
  int64_t axis = spec.attrs.Int("axis"), begin = spec.attrs.Int("begin"), rank = static_cast<int64_t>(large.shape.size());
  check.Expect(axis >= 0 && axis < rank && static_cast<int64_t>(small.shape.size()) == rank, "an axis of both operands");
  if (check.ok()) {
    check.Expect(begin >= 0 && begin + small.shape[axis] <= large.shape[axis], "a box inside the larger operand");
    for (int64_t d = 0; d < rank; ++d) check.Expect(d == axis || large.shape[d] == small.shape[d], "other axes alike");
  }
  if (!check.ok()) return check.status();
  StridedCopy copy = CopyOf(small);
  Shape strides = RowMajorStrides(large.shape);
  (large_is_input ? copy.from_strides : copy.to_strides) = strides;
  (large_is_input ? copy.from_begin : copy.to_begin) = begin * strides[axis];
  return copy;
}

KernelOr MakeSlice(const KernelSpec& spec) {
  absl::StatusOr<StridedCopy> copy = BoxCopy(spec, true);
  if (!copy.ok()) return copy.status();
  return Make({*copy});
}

KernelOr MakePad(const KernelSpec& spec) {
  absl::StatusOr<StridedCopy> copy = BoxCopy(spec, false);
  if (!copy.ok()) return copy.status();
  return Make({*copy}, spec.outputs[0]->bytes());
}

KernelOr MakeConcat(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1 << 20).Outputs(1, 1);
  const TensorSlice& y = check.out(0);
  int64_t axis = spec.attrs.Int("axis"), rank = static_cast<int64_t>(y.shape.size());
  check.Expect(axis >= 0 && axis < rank, "an axis of y");
  std::vector<StridedCopy> copies;
  int64_t at = 0;
  for (size_t i = 0; check.ok() && i < spec.inputs.size(); ++i) {
    const TensorSlice& x = check.in(static_cast<int>(i));
    check.SameType(x, y, "x and y").Expect(static_cast<int64_t>(x.shape.size()) == rank, "operands of one rank");
    if (!check.ok()) break;
    for (int64_t d = 0; d < rank; ++d) check.Expect(d == axis || x.shape[d] == y.shape[d], "other axes alike");
    StridedCopy copy = CopyOf(x);
    copy.to_strides = RowMajorStrides(y.shape);
    copy.to_begin = at * copy.to_strides[axis];
    at += x.shape[axis];
    copies.push_back(std::move(copy));
  }
  if (check.ok()) check.Expect(at == y.shape[axis], "parts that add up to y");
  if (!check.ok()) return check.status();
  return Make(std::move(copies));
}

KernelOr MakeExpand(const KernelSpec& spec) {
  SpecCheck check = OneToOne(spec);
  const TensorSlice& x = check.in(0);
  const TensorSlice& y = check.out(0);
  std::vector<char> expanded(y.shape.size(), spec.attrs.Ints("axes").empty());
  for (int64_t axis : spec.attrs.Ints("axes")) {
    check.Expect(axis >= 0 && axis < static_cast<int64_t>(y.shape.size()), "axes of y");
    if (check.ok()) expanded[axis] = 1;
  }
  if (!check.ok()) return check.status();
  StridedCopy copy = CopyOf(y);
  Shape strides = RowMajorStrides(x.shape);
  size_t next = 0;
  for (size_t d = 0; check.ok() && d < y.shape.size(); ++d) {
    if (!expanded[d]) check.Expect(next < x.shape.size() && x.shape[next] == y.shape[d], "x with the axes that stay");
    copy.from_strides[d] = expanded[d] || !check.ok() ? 0 : strides[next++];
  }
  check.Expect(next == x.shape.size(), "x with the axes that stay");
  if (!check.ok()) return check.status();
  return Make({copy});
}

WEIR_REGISTER_KERNEL("cpu", "reshape", MakeReshape);
WEIR_REGISTER_KERNEL("cpu", "transpose", MakeTranspose);
WEIR_REGISTER_KERNEL("cpu", "slice", MakeSlice);
WEIR_REGISTER_KERNEL("cpu", "pad", MakePad);
WEIR_REGISTER_KERNEL("cpu", "concat", MakeConcat);
WEIR_REGISTER_KERNEL("cpu", "expand", MakeExpand);

}  // namespace
}  // namespace weir
