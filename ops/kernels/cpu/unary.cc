#include "ops/kernels/cpu/unary.h"

#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/cpu/spec_check.h"
#include "ops/kernels/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/unary.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"
#include "ops/kernels/cpu/unary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class Code>
HWY_INLINE Code Make(UnaryConstants constants) {
  if constexpr (std::is_constructible_v<Code, UnaryConstants>) {
    return Code(constants);
  } else {
    return Code();
  }
}

template <class F>
HWY_INLINE void WithFunction(Unary function, UnaryConstants constants, F f) {
  switch (function) {
#define WEIR_UNARY_CASE(id, name, Code, has_grad) \
  case Unary::id: return f(Make<Code>(constants));
    WEIR_UNARY_FUNCTIONS(WEIR_UNARY_CASE)
#undef WEIR_UNARY_CASE
  }
}

void ApplyAny(Unary function, UnaryConstants constants, DType dtype, const void* x, void* y,
              int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    WithFunction(function, constants, [&](auto code) HWY_ATTR {
      MapInto(
          static_cast<T*>(y), n, [&](VF v) HWY_ATTR { return code.Value(v); },
          static_cast<const T*>(x));
    });
  });
}

void GradAny(Unary function, UnaryConstants constants, DType dtype, const void* read,
             const void* dy, void* dx, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    WithFunction(function, constants, [&](auto code) HWY_ATTR {
      if constexpr (requires(VF v) { code.Grad(v, v); }) {
        MapInto(
            static_cast<T*>(dx), n, [&](VF v, VF g) HWY_ATTR { return code.Grad(v, g); },
            static_cast<const T*>(read), static_cast<const T*>(dy));
      }
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(ApplyAny);
HWY_EXPORT(GradAny);

namespace {

struct Named {
  Unary function;
  const char* name;
  bool has_grad;
};
#define WEIR_UNARY_NAME(id, name, Code, has_grad) {Unary::id, name, has_grad},
constexpr Named kNames[] = {WEIR_UNARY_FUNCTIONS(WEIR_UNARY_NAME)};
#undef WEIR_UNARY_NAME

}  // namespace

std::optional<Unary> UnaryFromName(const std::string& name) {
  for (const Named& known : kNames) {
    if (name == known.name) return known.function;
  }
  return std::nullopt;
}

void ApplyUnary(Unary function, DType dtype, const void* x, void* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ApplyAny)(function, {}, dtype, x, y, n);
}

namespace {

// The attributes that hold the constants, in order.
std::vector<std::string> ConstantsOf(Unary function) {
  switch (function) {
    case Unary::kLeakyRelu: return {"slope"};
    case Unary::kElu: return {"alpha"};
    case Unary::kClamp: return {"min", "max"};
    case Unary::kPower: return {"exponent"};
    default: return {};
  }
}

// Reads the constants. The check fails if an attribute is absent.
UnaryConstants ReadConstants(Unary function, const KernelSpec& spec, SpecCheck* check) {
  UnaryConstants constants;
  float* next = &constants.first;
  for (const std::string& name : ConstantsOf(function)) {
    check->Expect(spec.attrs.Has(name), "attribute " + name);
    if (check->ok()) *next = static_cast<float>(spec.attrs.Real(name));
    next = &constants.second;
  }
  return constants;
}

class UnaryKernel final : public Kernel {
 public:
  UnaryKernel(Unary function, UnaryConstants constants, const TensorSlice& x)
      : function_(function),
        constants_(constants),
        dtype_(x.dtype),
        pieces_{x.num_elements(), kHeavyPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const char* x = static_cast<const char*>(args.inputs[0]);
    char* y = static_cast<char*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      int64_t at = pieces_.begin(piece) * SizeOf(dtype_);
      HWY_DYNAMIC_DISPATCH(ApplyAny)
      (function_, constants_, dtype_, x + at, y + at, pieces_.length(piece));
    });
    return absl::OkStatus();
  }

 private:
  const Unary function_;
  const UnaryConstants constants_;
  const DType dtype_;
  const Pieces pieces_;
};

class UnaryGradKernel final : public Kernel {
 public:
  UnaryGradKernel(Unary function, UnaryConstants constants, const TensorSlice& x)
      : function_(function),
        constants_(constants),
        dtype_(x.dtype),
        pieces_{x.num_elements(), kHeavyPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const char* read = static_cast<const char*>(args.inputs[0]);
    const char* dy = static_cast<const char*>(args.inputs[1]);
    char* dx = static_cast<char*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      int64_t at = pieces_.begin(piece) * SizeOf(dtype_);
      HWY_DYNAMIC_DISPATCH(GradAny)
      (function_, constants_, dtype_, read + at, dy + at, dx + at, pieces_.length(piece));
    });
    return absl::OkStatus();
  }

 private:
  const Unary function_;
  const UnaryConstants constants_;
  const DType dtype_;
  const Pieces pieces_;
};

KernelFactory MakeUnary(Unary function) {
  return [function](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    SpecCheck check(spec);
    check.Inputs(1, 1)
        .Outputs(1, 1)
        .Real(check.in(0), "x")
        .SameType(check.in(0), check.out(0), "x and y");
    check.SameShape(check.in(0), check.out(0), "x and y");
    const UnaryConstants constants = ReadConstants(function, spec, &check);
    if (!check.ok()) return check.status();
    return std::make_unique<UnaryKernel>(function, constants, check.in(0));
  };
}

KernelFactory MakeUnaryGrad(Unary function) {
  return [function](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    SpecCheck check(spec);
    check.Inputs(2, 2)
        .Outputs(1, 1)
        .Real(check.in(0), "x")
        .SameType(check.in(0), check.in(1), "x and dy");
    check.SameType(check.in(0), check.out(0), "x and dx");
    check.SameShape(check.in(0), check.in(1), "x and dy")
        .SameShape(check.in(0), check.out(0), "x and dx");
    const UnaryConstants constants = ReadConstants(function, spec, &check);
    if (!check.ok()) return check.status();
    return std::make_unique<UnaryGradKernel>(function, constants, check.in(0));
  };
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Named& known : kNames) {
    if (known.function == Unary::kNone) continue;
    KernelRegistry::Register("cpu", known.name, MakeUnary(known.function));
    if (known.has_grad)
      KernelRegistry::Register("cpu", std::string(known.name) + "_grad",
                               MakeUnaryGrad(known.function));
  }
  return true;
}();

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
