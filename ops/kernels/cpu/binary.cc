// add, sub, mul, div, maximum and minimum. Operands are aligned at their last axes, and an operand
// repeats along the axes that it lacks or in which its size is 1.
#include <algorithm>
#include <vector>

#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/cpu/spec_check.h"
#include "ops/kernels/kernel.h"

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

// Axes of the result that behave alike, from the outermost: along each, an operand repeats or not.
// Neighbours that repeat the same operands are one axis. The last axis is that of runs.
struct Axes {
  struct Axis {
    int64_t size = 1;
    bool a_repeats = false, b_repeats = false;
    int64_t a_stride = 0, b_stride = 0;  // elements
  };
  std::vector<Axis> axes;
};

bool RepeatsAlong(const Shape& operand, size_t axis, const Shape& result) {
  const size_t lacking = result.size() - operand.size();
  return axis < lacking || (operand[axis - lacking] == 1 && result[axis] != 1);
}

// Precondition: the operands fit the result (FitResult).
Axes AxesOf(const Shape& a, const Shape& b, const Shape& y) {
  Axes out;
  for (size_t d = 0; d < y.size(); ++d) {
    if (y[d] == 1) continue;
    const bool of_a = RepeatsAlong(a, d, y), of_b = RepeatsAlong(b, d, y);
    if (out.axes.empty() || out.axes.back().a_repeats != of_a ||
        out.axes.back().b_repeats != of_b) {
      out.axes.push_back({1, of_a, of_b, 0, 0});
    }
    out.axes.back().size *= y[d];
  }
  if (out.axes.empty()) out.axes.push_back({});
  int64_t a_stride = 1, b_stride = 1;
  for (auto axis = out.axes.rbegin(); axis != out.axes.rend(); ++axis) {
    axis->a_stride = axis->a_repeats ? 0 : a_stride;
    axis->b_stride = axis->b_repeats ? 0 : b_stride;
    if (!axis->a_repeats) a_stride *= axis->size;
    if (!axis->b_repeats) b_stride *= axis->size;
  }
  return out;
}

// Returns whether, along each axis, an operand is as long as the result, and the other one, too, or
// repeats.
bool FitResult(const Shape& a, const Shape& b, const Shape& y) {
  if (a.size() > y.size() || b.size() > y.size()) return false;
  for (size_t d = 0; d < y.size(); ++d) {
    if (RepeatsAlong(a, d, y) && RepeatsAlong(b, d, y)) return false;
    for (const Shape& operand : {a, b}) {
      if (!RepeatsAlong(operand, d, y) && operand[d + operand.size() - y.size()] != y[d])
        return false;
    }
  }
  return true;
}

class BinaryKernel final : public Kernel {
 public:
  BinaryKernel(Binary function, const TensorSlice& a, const TensorSlice& b, const TensorSlice& y)
      : function_(function),
        dtype_(y.dtype),
        axes_(AxesOf(a.shape, b.shape, y.shape).axes),
        pieces_{y.num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      for (int64_t at = pieces_.begin(piece); at < pieces_.end(piece);)
        at += RunAt(at, pieces_.end(piece) - at, args);
    });
    return absl::OkStatus();
  }

 private:
  // Computes from element `at` of the result to the end of its run, but at most `most` elements.
  // Returns the number of elements.
  int64_t RunAt(int64_t at, int64_t most, const KernelArgs& args) const {
    const Axes::Axis& last = axes_.back();
    const int64_t in_run = at % last.size, n = std::min(most, last.size - in_run);
    int64_t a = in_run * last.a_stride, b = in_run * last.b_stride;
    int64_t rest = at / last.size;
    for (size_t d = axes_.size() - 1; d-- > 0;) {
      const int64_t coordinate = rest % axes_[d].size;
      rest /= axes_[d].size;
      a += coordinate * axes_[d].a_stride;
      b += coordinate * axes_[d].b_stride;
    }
    const int64_t bytes = SizeOf(dtype_);
    HWY_DYNAMIC_DISPATCH(CombineRun)
    (function_, dtype_, {static_cast<const char*>(args.inputs[0]) + a * bytes, last.a_repeats},
     {static_cast<const char*>(args.inputs[1]) + b * bytes, last.b_repeats},
     static_cast<char*>(args.outputs[0]) + at * bytes, n);
    return n;
  }

  const Binary function_;
  const DType dtype_;
  const std::vector<Axes::Axis> axes_;
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
    check.Expect(FitResult(check.in(0).shape, check.in(1).shape, check.out(0).shape),
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
