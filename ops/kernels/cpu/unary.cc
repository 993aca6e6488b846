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

// Which op of a function a kernel computes: the function, or its gradient op.
enum class Part : uint8_t { kValue, kGrad };

class UnaryKernel final : public Kernel {
 public:
  UnaryKernel(Unary function, Part part, UnaryConstants constants, const TensorSlice& x)
      : function_(function),
        part_(part),
        constants_(constants),
        dtype_(x.dtype),
        pieces_{x.num_elements(), kHeavyPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      const int64_t at = pieces_.begin(piece) * SizeOf(dtype_), n = pieces_.length(piece);
      const char* x = static_cast<const char*>(args.inputs[0]) + at;
      char* out = static_cast<char*>(args.outputs[0]) + at;
      if (part_ == Part::kValue) {
        HWY_DYNAMIC_DISPATCH(ApplyAny)(function_, constants_, dtype_, x, out, n);
      } else {
        const char* dy = static_cast<const char*>(args.inputs[1]) + at;
        HWY_DYNAMIC_DISPATCH(GradAny)(function_, constants_, dtype_, x, dy, out, n);
      }
    });
    return absl::OkStatus();
  }

 private:
  const Unary function_;
  const Part part_;
  const UnaryConstants constants_;
  const DType dtype_;
  const Pieces pieces_;
};

KernelFactory MakeUnary(Unary function, Part part) {
  return [function, part](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    const int num_inputs = part == Part::kValue ? 1 : 2;
    SpecCheck check(spec);
    check.Inputs(num_inputs, num_inputs).Outputs(1, 1).Real(check.in(0), "x");
    if (part == Part::kGrad) {
      check.SameType(check.in(0), check.in(1), "x and dy")
          .SameShape(check.in(0), check.in(1), "x and dy");
    }
    const char* names = part == Part::kValue ? "x and y" : "x and dx";
    check.SameType(check.in(0), check.out(0), names).SameShape(check.in(0), check.out(0), names);
    const UnaryConstants constants = ReadConstants(function, spec, &check);
    if (!check.ok()) return check.status();
    return std::make_unique<UnaryKernel>(function, part, constants, check.in(0));
  };
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Named& known : kNames) {
    if (known.function == Unary::kNone) continue;
    KernelRegistry::Register("cpu", known.name, MakeUnary(known.function, Part::kValue));
    if (known.has_grad)
      KernelRegistry::Register("cpu", std::string(known.name) + "_grad",
                               MakeUnary(known.function, Part::kGrad));
  }
  return true;
}();

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
