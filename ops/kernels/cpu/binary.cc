// add, sub, mul, div, maximum and minimum. Operands are aligned at their last axes, and an operand
// repeats along the axes that it lacks or in which its size is 1.
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/broadcast_axes.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/spec_check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/binary.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

#ifndef WEIR_OPS_KERNELS_CPU_BINARY_ONCE
#define WEIR_OPS_KERNELS_CPU_BINARY_ONCE
namespace weir::kernels {

enum class Binary : uint8_t { kAdd, kSub, kMul, kDiv, kMaximum, kMinimum };

// An operand of a run of elements: the first element, and whether one element serves all.
struct RunOperand {
  const void* first;
  bool repeats;
};

}  // namespace weir::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class F>
HWY_INLINE void WithFunction(Binary function, F f) {
  switch (function) {
    case Binary::kAdd: return f([](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
    case Binary::kSub: return f([](VF a, VF b) HWY_ATTR { return hn::Sub(a, b); });
    case Binary::kMul: return f([](VF a, VF b) HWY_ATTR { return hn::Mul(a, b); });
    case Binary::kDiv: return f([](VF a, VF b) HWY_ATTR { return hn::Div(a, b); });
    case Binary::kMaximum: return f([](VF a, VF b) HWY_ATTR { return MaxOrNaN(a, b); });
    case Binary::kMinimum:
      return f([](VF a, VF b) HWY_ATTR { return hn::Neg(MaxOrNaN(hn::Neg(a), hn::Neg(b))); });
  }
}

template <class T>
HWY_INLINE VF Repeated(const T* element) {
  return hn::Set(DF(), hn::GetLane(LoadTail(element, 1)));
}

// y[i] = function(a[i], b[i]) for i < n, where an operand that repeats has one element. At most one
// operand repeats.
void CombineRun(Binary function, DType dtype, RunOperand a_any, RunOperand b_any, void* y_any,
                int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* a = static_cast<const T*>(a_any.first);
    const T* b = static_cast<const T*>(b_any.first);
    T* y = static_cast<T*>(y_any);
    WithFunction(function, [&](auto f) HWY_ATTR {
      if (a_any.repeats) {
        const VF one = Repeated(a);
        MapInto(
            y, n, [&](VF v) HWY_ATTR { return f(one, v); }, b);
      } else if (b_any.repeats) {
        const VF one = Repeated(b);
        MapInto(
            y, n, [&](VF v) HWY_ATTR { return f(v, one); }, a);
      } else {
        MapInto(y, n, f, a, b);
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

HWY_EXPORT(CombineRun);

namespace {

class BinaryKernel final : public Kernel {
 public:
  BinaryKernel(Binary function, const TensorSlice& a, const TensorSlice& b, const TensorSlice& y)
      : function_(function),
        dtype_(y.dtype),
        axes_({a.shape, b.shape}, y.shape),
        pieces_{y.num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int64_t bytes = SizeOf(dtype_);
    const char* a = static_cast<const char*>(args.inputs[0]);
    const char* b = static_cast<const char*>(args.inputs[1]);
    char* y = static_cast<char*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      axes_.ForEachRun(
          pieces_.begin(piece), pieces_.end(piece), [&](const BroadcastAxes::Run& run) {
            HWY_DYNAMIC_DISPATCH(CombineRun)
            (function_, dtype_, {a + run.first[0] * bytes, run.repeats[0]},
             {b + run.first[1] * bytes, run.repeats[1]}, y + run.at * bytes, run.count);
          });
    });
    return absl::OkStatus();
  }

 private:
  const Binary function_;
  const DType dtype_;
  const BroadcastAxes axes_;
  const Pieces pieces_;
};

KernelFactory MakeBinary(Binary function) {
  return [function](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    SpecCheck check(spec);
    check.Inputs(2, 2)
        .Outputs(1, 1)
        .Real(check.in(0), "a")
        .SameType(check.in(0), check.in(1), "a and b");
    check.SameType(check.in(0), check.out(0), "a and y");
    check.Expect(BroadcastAxes::Fit({check.in(0).shape, check.in(1).shape}, check.out(0).shape),
                 "operands as long as the result along each axis, or one of them of size 1");
    if (!check.ok()) return check.status();
    return std::make_unique<BinaryKernel>(function, check.in(0), check.in(1), check.out(0));
  };
}

WEIR_REGISTER_KERNEL("cpu", "add", MakeBinary(Binary::kAdd));
WEIR_REGISTER_KERNEL("cpu", "sub", MakeBinary(Binary::kSub));
WEIR_REGISTER_KERNEL("cpu", "mul", MakeBinary(Binary::kMul));
WEIR_REGISTER_KERNEL("cpu", "div", MakeBinary(Binary::kDiv));
WEIR_REGISTER_KERNEL("cpu", "maximum", MakeBinary(Binary::kMaximum));
WEIR_REGISTER_KERNEL("cpu", "minimum", MakeBinary(Binary::kMinimum));

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
