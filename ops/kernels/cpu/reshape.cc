// Ops that only move elements: reshape, slice, pad, concat, transpose. Elements are
// opaque bytes, so every type is allowed.
#include <cstring>
#include <vector>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/spec_check.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

constexpr int64_t kCopyBytes = 131072;

const char* In(const KernelArgs& args, size_t i) {
  return static_cast<const char*>(args.inputs[i]);
}
char* Out(const KernelArgs& args) { return static_cast<char*>(args.outputs[0]); }

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

class ReshapeKernel final : public Kernel {
 public:
  explicit ReshapeKernel(const TensorSlice& x) : pieces_{x.bytes(), kCopyBytes} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (In(args, 0) == Out(args)) return absl::OkStatus();
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      std::memcpy(Out(args) + pieces_.begin(piece), In(args, 0) + pieces_.begin(piece),
                  pieces_.length(piece));
    });
    return absl::OkStatus();
  }

 private:
  const Pieces pieces_;
};

KernelOr MakeReshape(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).SameType(check.in(0), check.out(0), "x and y");
  check.Expect(check.in(0).num_elements() == check.out(0).num_elements(),
               "as many elements in y as in x");
  if (!check.ok()) return check.status();
  return std::make_unique<ReshapeKernel>(check.in(0));
}

// A RowPart is a part of a row: slice, pad and concat see tensors as rows of the axes from the cut
// axis on.
struct RowPart {
  size_t input;
  int64_t from, to, bytes;  // offsets in the row of the input and of the output
};

class RowPartsKernel final : public Kernel {
 public:
  RowPartsKernel(int64_t num_rows, std::vector<int64_t> in_row_bytes, int64_t out_row_bytes,
                 std::vector<RowPart> parts)
      : in_row_bytes_(std::move(in_row_bytes)),
        out_row_bytes_(out_row_bytes),
        parts_(std::move(parts)),
        rows_(Pieces::OfRows(num_rows, out_row_bytes, kCopyBytes)) {
    int64_t written = 0;
    for (const RowPart& part : parts_) written += part.bytes;
    clear_ = written < out_row_bytes_;
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (out_row_bytes_ == 0) return absl::OkStatus();
    launch.team->For(rows_.count(), [&](int64_t piece) {
      for (int64_t row = rows_.begin(piece); row < rows_.end(piece); ++row) {
        char* out = Out(args) + row * out_row_bytes_;
        if (clear_) std::memset(out, 0, out_row_bytes_);
        for (const RowPart& part : parts_) {
          if (part.bytes == 0) continue;
          std::memcpy(out + part.to,
                      In(args, part.input) + row * in_row_bytes_[part.input] + part.from,
                      part.bytes);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  const std::vector<int64_t> in_row_bytes_;
  const int64_t out_row_bytes_;
  const std::vector<RowPart> parts_;
  const Pieces rows_;
  bool clear_ = false;
};

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

KernelFactory MakeCut(Cut cut) {
  return [cut](const KernelSpec& spec) -> KernelOr {
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
    return std::make_unique<RowPartsKernel>(
        ProductBefore(small.shape, axis), std::vector<int64_t>{slice ? large_bytes : small_bytes},
        slice ? small_bytes : large_bytes, std::vector<RowPart>{part});
  };
}

KernelOr MakeConcat(const KernelSpec& spec) {
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
  return std::make_unique<RowPartsKernel>(ProductBefore(check.out(0).shape, axis), row_bytes,
                                          out_bytes, parts);
}

// An Axis is an axis in the order of y, with its stride in x; axes that are neighbours in both x
// and y are joined.
struct Axis {
  int64_t size, stride;
};

std::vector<Axis> OrderedAxes(const Shape& shape, const std::vector<int64_t>& perm) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  std::vector<Axis> axes;
  for (int64_t source : perm) {
    if (shape[source] == 1) continue;
    if (!axes.empty() && axes.back().stride == strides[source] * shape[source]) {
      axes.back() = Axis{axes.back().size * shape[source], strides[source]};
    } else {
      axes.push_back(Axis{shape[source], strides[source]});
    }
  }
  return axes;
}

// If y's last axis is x's last axis, y is runs copied from x in another order. Otherwise the kernel
// transposes tiles over y's last axis and the axis of y that is x's last.
class TransposeKernel final : public Kernel {
 public:
  TransposeKernel(const TensorSlice& x, const std::vector<int64_t>& perm)
      : size_(SizeOf(x.dtype)), empty_(x.num_elements() == 0), axes_(OrderedAxes(x.shape, perm)) {
    if (axes_.empty()) axes_.push_back(Axis{1, 1});
    int64_t stride = 1;
    out_strides_.resize(axes_.size());
    for (size_t i = axes_.size(); i-- > 0;) {
      out_strides_[i] = stride;
      stride *= axes_[i].size;
    }
    last_ = axes_.size() - 1;
    runs_ = axes_[last_].stride == 1;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (axes_[i].stride == 1) fast_ = i;
    }
    int64_t outer = 1;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (i != last_ && (runs_ || i != fast_)) outer *= axes_[i].size;
    }
    if (runs_) {
      tasks_ = Pieces::OfRows(outer, axes_[last_].size * size_, kCopyBytes);
    } else {
      bands_ = Pieces::OfRows(axes_[fast_].size, axes_[last_].size * size_, kCopyBytes);
      // The size is whole vectors' worth of columns.
      bands_.size = RoundUp(bands_.size, 16);
      tasks_ = Pieces{outer * bands_.count(), 1};
      if (bands_.count() == 1)
        tasks_ = Pieces::OfRows(outer, axes_[last_].size * axes_[fast_].size * size_, kCopyBytes);
    }
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (empty_) return absl::OkStatus();
    launch.team->For(tasks_.count(), [&](int64_t piece) {
      for (int64_t task = tasks_.begin(piece); task < tasks_.end(piece); ++task) {
        if (runs_) {
          CopyRun(In(args, 0), Out(args), task);
        } else {
          TransposeBand(In(args, 0), Out(args), task / bands_.count(), task % bands_.count());
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  // Finds the offsets of the outer index in x and y.
  void Locate(int64_t outer, int64_t* in, int64_t* out) const {
    *in = *out = 0;
    for (size_t i = axes_.size(); i-- > 0;) {
      if (i == last_ || (!runs_ && i == fast_)) continue;
      const int64_t index = outer % axes_[i].size;
      outer /= axes_[i].size;
      *in += index * axes_[i].stride;
      *out += index * out_strides_[i];
    }
  }

  void CopyRun(const char* x, char* y, int64_t outer) const {
    int64_t in, out;
    Locate(outer, &in, &out);
    std::memcpy(y + out * size_, x + in * size_, axes_[last_].size * size_);
  }

  // Rows of the tile run along y's last axis (strided in x), columns along x's.
  void TransposeBand(const char* x, char* y, int64_t outer, int64_t band) const {
    int64_t in, out;
    Locate(outer, &in, &out);
    in += bands_.begin(band);
    out += bands_.begin(band) * out_strides_[fast_];
    TransposeTile(size_, x + in * size_, axes_[last_].size, bands_.length(band),
                  axes_[last_].stride, y + out * size_, out_strides_[fast_]);
  }

  const int64_t size_;
  const bool empty_;
  std::vector<Axis> axes_;
  std::vector<int64_t> out_strides_;
  size_t last_ = 0, fast_ = 0;
  bool runs_ = false;
  Pieces bands_, tasks_;
};

KernelOr MakeTranspose(const KernelSpec& spec) {
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
  return std::make_unique<TransposeKernel>(check.in(0), perm);
}

WEIR_REGISTER_KERNEL("cpu", "reshape", MakeReshape);
WEIR_REGISTER_KERNEL("cpu", "slice", MakeCut(Cut::kSlice));
WEIR_REGISTER_KERNEL("cpu", "pad", MakeCut(Cut::kPad));
WEIR_REGISTER_KERNEL("cpu", "concat", MakeConcat);
WEIR_REGISTER_KERNEL("cpu", "transpose", MakeTranspose);

}  // namespace
}  // namespace weir::kernels
