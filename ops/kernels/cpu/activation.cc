#include "ops/kernels/cpu/activation.h"

#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/cpu/spec_check.h"
#include "ops/kernels/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/activation.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/activation-inl.h"
#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void ActivateTyped(Activation activation, const T* x, T* y, int64_t n) {
  switch (activation) {
    case Activation::kNone:
      return MapInto(
          y, n, [](VF v) HWY_ATTR { return v; }, x);
    case Activation::kRelu:
      return MapInto(
          y, n, [](VF v) HWY_ATTR { return Relu(v); }, x);
    case Activation::kGelu:
      return MapInto(
          y, n, [](VF v) HWY_ATTR { return Gelu(v); }, x);
    case Activation::kGeluExact:
      return MapInto(
          y, n, [](VF v) HWY_ATTR { return GeluExact(v); }, x);
    case Activation::kSilu:
      return MapInto(
          y, n, [](VF v) HWY_ATTR { return Silu(v); }, x);
  }
}

template <class T>
void ActivateGradTyped(Activation activation, const T* x, const T* dy, T* dx, int64_t n) {
  switch (activation) {
    case Activation::kNone:
      return MapInto(
          dx, n, [](VF v) HWY_ATTR { return v; }, dy);
    case Activation::kRelu:
      return MapInto(
          dx, n, [](VF v, VF g) HWY_ATTR { return ReluGrad(v, g); }, x, dy);
    case Activation::kGelu:
      return MapInto(
          dx, n, [](VF v, VF g) HWY_ATTR { return GeluGrad(v, g); }, x, dy);
    case Activation::kGeluExact:
      return MapInto(
          dx, n, [](VF v, VF g) HWY_ATTR { return GeluExactGrad(v, g); }, x, dy);
    case Activation::kSilu:
      return MapInto(
          dx, n, [](VF v, VF g) HWY_ATTR { return SiluGrad(v, g); }, x, dy);
  }
}

void ActivateAny(Activation activation, DType dtype, const void* x, void* y, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    ActivateTyped(activation, static_cast<const T*>(x), static_cast<T*>(y), n);
  });
}

void ActivateGradAny(Activation activation, DType dtype, const void* x, const void* dy, void* dx,
                     int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    ActivateGradTyped(activation, static_cast<const T*>(x), static_cast<const T*>(dy),
                      static_cast<T*>(dx), n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(ActivateAny);
HWY_EXPORT(ActivateGradAny);

std::optional<Activation> ActivationFromName(const std::string& name) {
  if (name == "none") return Activation::kNone;
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_exact") return Activation::kGeluExact;
  if (name == "silu") return Activation::kSilu;
  return std::nullopt;
}

void Activate(Activation activation, DType dtype, const void* x, void* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ActivateAny)(activation, dtype, x, y, n);
}

void ActivateGrad(Activation activation, DType dtype, const void* x, const void* dy, void* dx,
                  int64_t n) {
  HWY_DYNAMIC_DISPATCH(ActivateGradAny)(activation, dtype, x, dy, dx, n);
}

namespace {

class ActivationKernel final : public Kernel {
 public:
  ActivationKernel(Activation activation, const TensorSlice& x)
      : activation_(activation), dtype_(x.dtype), pieces_{x.num_elements(), kHeavyPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const char* x = static_cast<const char*>(args.inputs[0]);
    char* y = static_cast<char*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      int64_t at = pieces_.begin(piece) * SizeOf(dtype_);
      Activate(activation_, dtype_, x + at, y + at, pieces_.length(piece));
    });
    return absl::OkStatus();
  }

 private:
  const Activation activation_;
  const DType dtype_;
  const Pieces pieces_;
};

class ActivationGradKernel final : public Kernel {
 public:
  ActivationGradKernel(Activation activation, const TensorSlice& x)
      : activation_(activation), dtype_(x.dtype), pieces_{x.num_elements(), kHeavyPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const char* x = static_cast<const char*>(args.inputs[0]);
    const char* dy = static_cast<const char*>(args.inputs[1]);
    char* dx = static_cast<char*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      int64_t at = pieces_.begin(piece) * SizeOf(dtype_);
      ActivateGrad(activation_, dtype_, x + at, dy + at, dx + at, pieces_.length(piece));
    });
    return absl::OkStatus();
  }

 private:
  const Activation activation_;
  const DType dtype_;
  const Pieces pieces_;
};

KernelFactory MakeActivation(Activation activation) {
  return [activation](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    SpecCheck check(spec);
    check.Inputs(1, 1)
        .Outputs(1, 1)
        .Real(check.in(0), "x")
        .SameType(check.in(0), check.out(0), "x and y");
    check.SameShape(check.in(0), check.out(0), "x and y");
    if (!check.ok()) return check.status();
    return std::make_unique<ActivationKernel>(activation, check.in(0));
  };
}

KernelFactory MakeActivationGrad(Activation activation) {
  return [activation](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    SpecCheck check(spec);
    check.Inputs(2, 2)
        .Outputs(1, 1)
        .Real(check.in(0), "x")
        .SameType(check.in(0), check.in(1), "x and dy");
    check.SameType(check.in(0), check.out(0), "x and dx");
    check.SameShape(check.in(0), check.in(1), "x and dy")
        .SameShape(check.in(0), check.out(0), "x and dx");
    if (!check.ok()) return check.status();
    return std::make_unique<ActivationGradKernel>(activation, check.in(0));
  };
}

WEIR_REGISTER_KERNEL("cpu", "relu", MakeActivation(Activation::kRelu));
WEIR_REGISTER_KERNEL("cpu", "gelu", MakeActivation(Activation::kGelu));
WEIR_REGISTER_KERNEL("cpu", "gelu_exact", MakeActivation(Activation::kGeluExact));
WEIR_REGISTER_KERNEL("cpu", "silu", MakeActivation(Activation::kSilu));
WEIR_REGISTER_KERNEL("cpu", "relu_grad", MakeActivationGrad(Activation::kRelu));
WEIR_REGISTER_KERNEL("cpu", "gelu_grad", MakeActivationGrad(Activation::kGelu));
WEIR_REGISTER_KERNEL("cpu", "gelu_exact_grad", MakeActivationGrad(Activation::kGeluExact));
WEIR_REGISTER_KERNEL("cpu", "silu_grad", MakeActivationGrad(Activation::kSilu));

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
