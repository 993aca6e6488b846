// add, sub, mul (the second operand repeats over leading axes), scale, cast, accumulate.
#include <cstring>

#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/cpu/spec_check.h"
#include "ops/kernels/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/arithmetic.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

#ifndef WEIR_OPS_KERNELS_CPU_ARITHMETIC_ONCE
#define WEIR_OPS_KERNELS_CPU_ARITHMETIC_ONCE
namespace weir::kernels {
enum class Arithmetic : uint8_t { kAdd, kSub, kMul };
}
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class F>
HWY_INLINE void WithArithmetic(Arithmetic op, F f) {
  switch (op) {
    case Arithmetic::kAdd: return f([](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
    case Arithmetic::kSub: return f([](VF a, VF b) HWY_ATTR { return hn::Sub(a, b); });
    case Arithmetic::kMul: return f([](VF a, VF b) HWY_ATTR { return hn::Mul(a, b); });
  }
}

// y[i] = op(a[i], b[i mod period]) for begin <= i < end.
void CombineRange(Arithmetic op, DType dtype, const void* a_any, const void* b_any, void* y_any,
                  int64_t period, int64_t begin, int64_t end) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* a = static_cast<const T*>(a_any);
    const T* b = static_cast<const T*>(b_any);
    T* y = static_cast<T*>(y_any);
    WithArithmetic(op, [&](auto f) HWY_ATTR {
      if (period == 1) {
        const VF scalar = hn::Set(DF(), hn::GetLane(LoadTail(b, 1)));
        MapInto(
            y + begin, end - begin, [&](VF v) HWY_ATTR { return f(v, scalar); }, a + begin);
        return;
      }
      for (int64_t i = begin; i < end;) {
        int64_t at = i % period;
        int64_t n = std::min(end - i, period - at);
        MapInto(y + i, n, f, a + i, b + at);
        i += n;
      }
    });
  });
}

void ScaleRange(DType dtype, const void* x_any, void* y_any, float factor, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const VF scale = hn::Set(DF(), factor);
    MapInto(
        static_cast<T*>(y_any), n, [&](VF v) HWY_ATTR { return hn::Mul(v, scale); },
        static_cast<const T*>(x_any));
  });
}

void CastRange(DType from, DType to, const void* x_any, void* y_any, int64_t n) {
  WithReal(from, [&](auto* x_type) HWY_ATTR {
    using TX = std::remove_pointer_t<decltype(x_type)>;
    WithReal(to, [&](auto* y_type) HWY_ATTR {
      using TY = std::remove_pointer_t<decltype(y_type)>;
      MapInto(
          static_cast<TY*>(y_any), n, [](VF v) HWY_ATTR { return v; },
          static_cast<const TX*>(x_any));
    });
  });
}

void AccumulateRange(DType from, const void* g_any, float* sum, int64_t n) {
  WithReal(from, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    MapInto(
        sum, n, [](VF s, VF g) HWY_ATTR { return hn::Add(s, g); }, static_cast<const float*>(sum),
        static_cast<const T*>(g_any));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(CombineRange);
HWY_EXPORT(ScaleRange);
HWY_EXPORT(CastRange);
HWY_EXPORT(AccumulateRange);

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

const char* At(const void* base, int64_t element, DType dtype) {
  return static_cast<const char*>(base) + element * SizeOf(dtype);
}
char* At(void* base, int64_t element, DType dtype) {
  return static_cast<char*>(base) + element * SizeOf(dtype);
}

class ArithmeticKernel final : public Kernel {
 public:
  ArithmeticKernel(Arithmetic op, const TensorSlice& a, const TensorSlice& b)
      : op_(op),
        dtype_(a.dtype),
        period_(b.num_elements()),
        pieces_{a.num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      HWY_DYNAMIC_DISPATCH(CombineRange)
      (op_, dtype_, args.inputs[0], args.inputs[1], args.outputs[0], period_, pieces_.begin(piece),
       pieces_.end(piece));
    });
    return absl::OkStatus();
  }

 private:
  const Arithmetic op_;
  const DType dtype_;
  const int64_t period_;
  const Pieces pieces_;
};

// Returns whether b is as long as the last axes of a, so that b repeats with a fixed period.
bool IsSuffix(const Shape& b, const Shape& a) {
  if (b.size() > a.size()) return NumElements(b) == 1;
  return std::equal(b.begin(), b.end(), a.end() - b.size()) || NumElements(b) == 1;
}

KernelFactory MakeArithmetic(Arithmetic op) {
  return [op](const KernelSpec& spec) -> KernelOr {
    SpecCheck check(spec);
    check.Inputs(2, 2)
        .Outputs(1, 1)
        .Real(check.in(0), "a")
        .SameType(check.in(0), check.in(1), "a and b");
    check.SameType(check.in(0), check.out(0), "a and y")
        .SameShape(check.in(0), check.out(0), "a and y");
    check.Expect(IsSuffix(check.in(1).shape, check.in(0).shape),
                 "the shape of b to end the shape of a");
    if (!check.ok()) return check.status();
    return std::make_unique<ArithmeticKernel>(op, check.in(0), check.in(1));
  };
}

class ScaleKernel final : public Kernel {
 public:
  ScaleKernel(float factor, const TensorSlice& x)
      : factor_(factor), dtype_(x.dtype), pieces_{x.num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      int64_t begin = pieces_.begin(piece);
      HWY_DYNAMIC_DISPATCH(ScaleRange)
      (dtype_, At(args.inputs[0], begin, dtype_), At(args.outputs[0], begin, dtype_), factor_,
       pieces_.length(piece));
    });
    return absl::OkStatus();
  }

 private:
  const float factor_;
  const DType dtype_;
  const Pieces pieces_;
};

KernelOr MakeScale(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameType(check.in(0), check.out(0), "x and y");
  check.SameShape(check.in(0), check.out(0), "x and y")
      .Expect(spec.attrs.Has("factor"), "attribute factor");
  if (!check.ok()) return check.status();
  return std::make_unique<ScaleKernel>(static_cast<float>(spec.attrs.Real("factor")), check.in(0));
}

class CastKernel final : public Kernel {
 public:
  CastKernel(const TensorSlice& x, const TensorSlice& y)
      : from_(x.dtype), to_(y.dtype), pieces_{x.num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      int64_t begin = pieces_.begin(piece);
      const char* x = At(args.inputs[0], begin, from_);
      char* y = At(args.outputs[0], begin, to_);
      if (from_ == to_) {
        if (x != y) std::memcpy(y, x, pieces_.length(piece) * SizeOf(from_));
      } else {
        HWY_DYNAMIC_DISPATCH(CastRange)(from_, to_, x, y, pieces_.length(piece));
      }
    });
    return absl::OkStatus();
  }

 private:
  const DType from_, to_;
  const Pieces pieces_;
};

KernelOr MakeCast(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).SameShape(check.in(0), check.out(0), "x and y");
  check.Expect(check.in(0).dtype == check.out(0).dtype ||
                   (IsReal(check.in(0).dtype) && IsReal(check.out(0).dtype)),
               "real elements, or the same type on both sides");
  if (!check.ok()) return check.status();
  return std::make_unique<CastKernel>(check.in(0), check.out(0));
}

// acc = g in the first act of a span, acc += g in the others.
class AccumulateKernel final : public Kernel {
 public:
  explicit AccumulateKernel(const TensorSlice& g)
      : dtype_(g.dtype), pieces_{g.num_elements(), kLightPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      int64_t begin = pieces_.begin(piece), n = pieces_.length(piece);
      const char* g = At(args.inputs[0], begin, dtype_);
      float* sum = static_cast<float*>(args.outputs[0]) + begin;
      if (args.span_act > 0) {
        HWY_DYNAMIC_DISPATCH(AccumulateRange)(dtype_, g, sum, n);
      } else if (dtype_ == DType::kF32) {
        std::memcpy(sum, g, n * sizeof(float));
      } else {
        HWY_DYNAMIC_DISPATCH(CastRange)(dtype_, DType::kF32, g, sum, n);
      }
    });
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  const Pieces pieces_;
};

KernelOr MakeAccumulate(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).Real(check.in(0), "g").Is(check.out(0), DType::kF32, "acc");
  check.SameShape(check.in(0), check.out(0), "g and acc");
  if (!check.ok()) return check.status();
  return std::make_unique<AccumulateKernel>(check.in(0));
}

WEIR_REGISTER_KERNEL("cpu", "add", MakeArithmetic(Arithmetic::kAdd));
WEIR_REGISTER_KERNEL("cpu", "sub", MakeArithmetic(Arithmetic::kSub));
WEIR_REGISTER_KERNEL("cpu", "mul", MakeArithmetic(Arithmetic::kMul));
WEIR_REGISTER_KERNEL("cpu", "scale", MakeScale);
WEIR_REGISTER_KERNEL("cpu", "cast", MakeCast);
WEIR_REGISTER_KERNEL("cpu", "accumulate", MakeAccumulate);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
