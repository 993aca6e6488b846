#include "ops/kernels/cpu/unary.h"

#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/unary_op.h"
#include "runtime/base/status.h"

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

void ApplyUnary(Unary function, DType dtype, const void* x, void* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ApplyAny)(function, {}, dtype, x, y, n);
}

namespace {

class UnaryKernel final : public Kernel {
 public:
  UnaryKernel(const UnaryOp& op, UnaryConstants constants, const TensorSlice& x)
      : function_(op.function),
        part_(op.part),
        constants_(constants),
        dtype_(x.dtype),
        pieces_{x.num_elements(), kHeavyPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      const int64_t at = pieces_.begin(piece) * SizeOf(dtype_), n = pieces_.length(piece);
      const char* x = static_cast<const char*>(args.inputs[0]) + at;
      char* out = static_cast<char*>(args.outputs[0]) + at;
      if (part_ == UnaryPart::kValue) {
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
  const UnaryPart part_;
  const UnaryConstants constants_;
  const DType dtype_;
  const Pieces pieces_;
};

KernelFactory MakeUnary(const UnaryOp& op) {
  return [op](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    WEIR_ASSIGN_OR_RETURN(const UnaryConstants constants, CheckUnary(op, spec));
    return std::make_unique<UnaryKernel>(op, constants, *spec.inputs[0]);
  };
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const UnaryOp& op : UnaryOps()) KernelRegistry::Register("cpu", op.name, MakeUnary(op));
  return true;
}();

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
