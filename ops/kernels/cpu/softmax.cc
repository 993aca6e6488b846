// softmax over the last axis and its gradient.
#include <limits>

#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/softmax_check.h"
#include "ops/kernels/shape/spec_check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/softmax.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

// `row` is n elements of scratch: exponentials are computed once and kept in f32.
void SoftmaxRow(DType dtype, const void* x_any, void* y_any, float* row, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = static_cast<const T*>(x_any);
    const VF shift = hn::Set(DF(), MaxOver(x, n));
    MapInto(
        row, n, [&](VF v) HWY_ATTR { return Exp(hn::Sub(v, shift)); }, x);
    const float* exponentials = row;
    const VF factor = hn::Set(DF(), 1.0f / SumOver(
                                               n, [](VF v) HWY_ATTR { return v; }, exponentials));
    MapInto(
        static_cast<T*>(y_any), n, [&](VF v) HWY_ATTR { return hn::Mul(v, factor); }, exponentials);
  });
}

// dx = y (dy - sum(dy y)).
void SoftmaxGradRow(DType dtype, const void* y_any, const void* dy_any, void* dx_any, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* y = static_cast<const T*>(y_any);
    const T* dy = static_cast<const T*>(dy_any);
    const VF sum = hn::Set(DF(), SumOver(
                                     n, [](VF a, VF b) HWY_ATTR { return hn::Mul(a, b); }, y, dy));
    MapInto(
        static_cast<T*>(dx_any), n,
        [&](VF a, VF b) HWY_ATTR { return hn::Mul(a, hn::Sub(b, sum)); }, y, dy);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(SoftmaxGradRow);

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

class SoftmaxKernel final : public Kernel {
 public:
  SoftmaxKernel(const TensorSlice& x, int num_threads)
      : dtype_(x.dtype),
        n_(SizeFromEnd(x, 1)),
        pieces_(Pieces::OfRows(LeadingElements(x, 1), n_, kHeavyPiece)),
        row_bytes_(RoundUp(n_ * 4, kCacheLine)),
        num_threads_(num_threads) {}

  int64_t workspace_bytes() const override { return row_bytes_ * num_threads_; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (n_ == 0) return absl::OkStatus();
    const int64_t stride = n_ * SizeOf(dtype_);
    launch.team->For(pieces_.count(), [&](int64_t piece, int worker) {
      float* row =
          reinterpret_cast<float*>(static_cast<char*>(launch.workspace) + worker * row_bytes_);
      for (int64_t i = pieces_.begin(piece); i < pieces_.end(piece); ++i) {
        HWY_DYNAMIC_DISPATCH(SoftmaxRow)
        (dtype_, static_cast<const char*>(args.inputs[0]) + i * stride,
         static_cast<char*>(args.outputs[0]) + i * stride, row, n_);
      }
    });
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  const int64_t n_;
  const Pieces pieces_;
  const int64_t row_bytes_;
  const int num_threads_;
};

class SoftmaxGradKernel final : public Kernel {
 public:
  explicit SoftmaxGradKernel(const TensorSlice& y)
      : dtype_(y.dtype),
        n_(SizeFromEnd(y, 1)),
        pieces_(Pieces::OfRows(LeadingElements(y, 1), n_, kHeavyPiece)) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int64_t stride = n_ * SizeOf(dtype_);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      for (int64_t i = pieces_.begin(piece); i < pieces_.end(piece); ++i) {
        HWY_DYNAMIC_DISPATCH(SoftmaxGradRow)
        (dtype_, static_cast<const char*>(args.inputs[0]) + i * stride,
         static_cast<const char*>(args.inputs[1]) + i * stride,
         static_cast<char*>(args.outputs[0]) + i * stride, n_);
      }
    });
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  const int64_t n_;
  const Pieces pieces_;
};

KernelOr MakeSoftmax(const KernelSpec& spec) {
  if (absl::Status status = CheckSoftmax(spec); !status.ok()) return status;
  return std::make_unique<SoftmaxKernel>(*spec.inputs[0], spec.num_threads);
}

KernelOr MakeSoftmaxGrad(const KernelSpec& spec) {
  if (absl::Status status = CheckSoftmaxGrad(spec); !status.ok()) return status;
  return std::make_unique<SoftmaxGradKernel>(*spec.inputs[0]);
}

WEIR_REGISTER_KERNEL("cpu", "softmax", MakeSoftmax);
WEIR_REGISTER_KERNEL("cpu", "softmax_grad", MakeSoftmaxGrad);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
