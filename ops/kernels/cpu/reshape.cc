// Ops that only move elements: reshape, slice, pad, concat, transpose. Elements are
// opaque bytes, so every type is allowed.
#include <cstring>
#include <vector>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/ordered_axes.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/row_parts.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/status.h"

namespace weir::kernels {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

constexpr int64_t kCopyBytes = 131072;

const char* In(const KernelArgs& args, size_t i) {
  return static_cast<const char*>(args.inputs[i]);
}
char* Out(const KernelArgs& args) { return static_cast<char*>(args.outputs[0]); }

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

// Slice, pad and concat.
class RowPartsKernel final : public Kernel {
 public:
  explicit RowPartsKernel(RowParts rows)
      : in_row_bytes_(std::move(rows.in_row_bytes)),
        out_row_bytes_(rows.out_row_bytes),
        parts_(std::move(rows.parts)),
        rows_(Pieces::OfRows(rows.num_rows, out_row_bytes_, kCopyBytes)) {
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

KernelFactory MakeRows(absl::StatusOr<RowParts> (*parts)(const KernelSpec& spec)) {
  return [parts](const KernelSpec& spec) -> KernelOr {
    WEIR_ASSIGN_OR_RETURN(RowParts rows, parts(spec));
    return std::make_unique<RowPartsKernel>(std::move(rows));
  };
}

// If y's last axis is x's last axis, y is runs copied from x in another order. Otherwise the kernel
// transposes tiles over y's last axis and the axis of y that is x's last.
class TransposeKernel final : public Kernel {
 public:
  TransposeKernel(const TensorSlice& x, std::vector<OrderedAxis> axes)
      : size_(SizeOf(x.dtype)), empty_(x.num_elements() == 0), axes_(std::move(axes)) {
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
  std::vector<OrderedAxis> axes_;
  std::vector<int64_t> out_strides_;
  size_t last_ = 0, fast_ = 0;
  bool runs_ = false;
  Pieces bands_, tasks_;
};

KernelOr MakeTranspose(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(std::vector<OrderedAxis> axes, TransposedAxes(spec));
  return std::make_unique<TransposeKernel>(*spec.inputs[0], std::move(axes));
}

WEIR_REGISTER_KERNEL("cpu", "reshape", MakeReshape);
WEIR_REGISTER_KERNEL("cpu", "slice", MakeRows(SliceParts));
WEIR_REGISTER_KERNEL("cpu", "pad", MakeRows(PadParts));
WEIR_REGISTER_KERNEL("cpu", "concat", MakeRows(ConcatParts));
WEIR_REGISTER_KERNEL("cpu", "transpose", MakeTranspose);

}  // namespace
}  // namespace weir::kernels
