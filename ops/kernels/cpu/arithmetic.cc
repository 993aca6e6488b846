// scale, cast, step_mean, accumulate.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/spec_check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/arithmetic.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

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

// Returns x without its fraction. What i32 does not hold becomes the nearest number that it holds,
// and what is not a number becomes 0.
int32_t ToInteger(float x) {
  constexpr double kLeast = std::numeric_limits<int32_t>::min();
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  if (std::isnan(x)) return 0;
  return static_cast<int32_t>(std::clamp(static_cast<double>(x), kLeast, kMost));
}

// Casts between element types of which one is not real. Integers pass through f32 only to and from
// real numbers.
template <class From, class To>
void CastElements(const From* x, To* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kStoresReals<From> && std::is_same_v<To, uint8_t>) {
      y[i] = ToFloat(x[i]) != 0;
    } else if constexpr (kStoresReals<From> && std::is_same_v<To, int32_t>) {
      y[i] = ToInteger(ToFloat(x[i]));
    } else if constexpr (kStoresReals<To> && !kStoresReals<From>) {
      y[i] = RoundTo<To>(static_cast<float>(x[i]));
    } else if constexpr (std::is_same_v<To, uint8_t>) {
      y[i] = x[i] != 0;
    } else if constexpr (std::is_integral_v<From>) {
      y[i] = static_cast<To>(x[i]);
    }
  }
}

template <class From>
void CastFrom(const void* x_any, DType to, void* y, int64_t n) {
  const From* x = static_cast<const From*>(x_any);
  switch (to) {
    case DType::kF32: return CastElements(x, static_cast<float*>(y), n);
    case DType::kBF16: return CastElements(x, static_cast<BFloat16*>(y), n);
    case DType::kF16: return CastElements(x, static_cast<Float16*>(y), n);
    case DType::kI32: return CastElements(x, static_cast<int32_t*>(y), n);
    case DType::kBool: return CastElements(x, static_cast<uint8_t*>(y), n);
  }
}

void CastAny(DType from, const void* x, DType to, void* y, int64_t n) {
  if (IsReal(from) && IsReal(to)) return HWY_DYNAMIC_DISPATCH(CastRange)(from, to, x, y, n);
  switch (from) {
    case DType::kF32: return CastFrom<float>(x, to, y, n);
    case DType::kBF16: return CastFrom<BFloat16>(x, to, y, n);
    case DType::kF16: return CastFrom<Float16>(x, to, y, n);
    case DType::kI32: return CastFrom<int32_t>(x, to, y, n);
    case DType::kBool: return CastFrom<uint8_t>(x, to, y, n);
  }
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
        CastAny(from_, x, to_, y, pieces_.length(piece));
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
  if (!check.ok()) return check.status();
  return std::make_unique<CastKernel>(check.in(0), check.out(0));
}

// In training the result is the statistic; the average and the sample are for the update.
KernelOr MakeMovingAverage(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 3)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameType(check.in(0), check.out(0), "x and y");
  check.SameShape(check.in(0), check.out(0), "x and y");
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

WEIR_REGISTER_KERNEL("cpu", "scale", MakeScale);
WEIR_REGISTER_KERNEL("cpu", "cast", MakeCast);
WEIR_REGISTER_KERNEL("cpu", "moving_average", MakeMovingAverage);
// A step of one micro-batch has the operand itself as the mean over the micro-batches.
WEIR_REGISTER_KERNEL("cpu", "step_mean", MakeCast);
WEIR_REGISTER_KERNEL("cpu", "accumulate", MakeAccumulate);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
