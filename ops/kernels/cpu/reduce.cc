// reduce_sum, reduce_mean, reduce_max and the gradient of the maximum. The axes of x are joined
// to [outer kept][reduced][inner kept]; rows of the reduced axis are added in pieces fixed by
// shape and the pieces in their order, so that threads change nothing.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/cpu/spec_check.h"
#include "ops/kernels/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/reduce.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {
namespace {

// total[i] = total[i] + x[i], or the larger.
void CombineRow(DType dtype, bool is_max, const void* x_any, float* total, int64_t n) {
  const float* before = total;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    if (is_max) {
      MapInto(total, n, [](VF a, VF b) HWY_ATTR { return MaxOrNaN(a, b); }, before, x);
    } else {
      MapInto(total, n, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); }, before, x);
    }
  });
}

// The sum or maximum of one contiguous run.
float ReduceRun(DType dtype, bool is_max, const void* x_any, int64_t n) {
  float result = 0;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    result = is_max ? MaxOver(x, n) : SumOver(n, [](VF v) HWY_ATTR { return v; }, x);
  });
  return result;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(CombineRow);
HWY_EXPORT(ReduceRun);

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
enum class Reduction { kSum, kMean, kMax };

// x as [outer][reduced][inner], if its reduced axes are adjacent; `regular` is false otherwise.
struct ReduceShape {
  int64_t outer = 1, reduced = 1, inner = 1;
  bool regular = true;
  double global_count = 1;
  std::vector<char> is_reduced;
};

ReduceShape ShapeOf(const TensorSlice& x, const std::vector<int64_t>& axes) {
  ReduceShape shape;
  shape.is_reduced.assign(x.shape.size(), axes.empty());
  for (int64_t axis : axes) shape.is_reduced[axis] = 1;
  int phase = 0;  // 0: outer, 1: reduced, 2: inner
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (shape.is_reduced[d]) {
      if (phase == 2 && x.shape[d] != 1) shape.regular = false;
      phase = std::max(phase, 1);
      shape.reduced *= x.shape[d];
      shape.global_count *= static_cast<double>(x.global_shape[d]);
    } else {
      if (phase == 1) phase = 2;
      (phase == 2 ? shape.inner : shape.outer) *= x.shape[d];
    }
  }
  return shape;
}

bool AxesFit(const std::vector<int64_t>& axes, const TensorSlice& x) {
  return std::all_of(axes.begin(), axes.end(), [&](int64_t a) { return a >= 0 && a < static_cast<int64_t>(x.shape.size()); });
}

class ReduceKernel final : public Kernel {
 public:
  ReduceKernel(Reduction reduction, const TensorSlice& x, const TensorSlice& y, ReduceShape shape)
      : is_max_(reduction == Reduction::kMax),
        factor_(reduction == Reduction::kMean ? static_cast<float>(1.0 / shape.global_count) : 1.0f),
        x_(x),
        y_(y),
        shape_(std::move(shape)) {
    if (!shape_.regular) return;
    // A run of the innermost axis is one piece; rows of several are cut.
    int64_t row = std::max<int64_t>(1, shape_.inner);
    pieces_ = Pieces::OfRows(shape_.reduced, row, kLightPiece);
    int64_t most = std::max<int64_t>(1, kPartialsMax / row);
    if (pieces_.count() > most) pieces_.size = (shape_.reduced + most - 1) / most;
  }

  int64_t workspace_bytes() const override {
    return shape_.regular ? shape_.outer * std::max<int64_t>(1, pieces_.count()) * shape_.inner * 4
                          : y_.num_elements() * 4;
  }

  void Run(const KernelArgs& args) override {
    float* partials = static_cast<float*>(args.workspace);
    const char* x = static_cast<const char*>(args.inputs[0]);
    if (y_.num_elements() == 0) return;
    if (!shape_.regular) {
      RunIrregular(x, partials);
      Store(partials, y_.num_elements(), args.outputs[0], 0);
      return;
    }
    const int64_t count = std::max<int64_t>(1, pieces_.count());
    const int64_t row_bytes = shape_.inner * SizeOf(x_.dtype);
    args.team->For(shape_.outer * count, [&](int64_t task) {
      int64_t outer = task / count, piece = task % count;
      float* total = partials + task * shape_.inner;
      const char* begin = x + outer * shape_.reduced * row_bytes;
      if (shape_.inner == 1) {
        int64_t from = pieces_.begin(piece);
        int64_t n = std::max<int64_t>(0, pieces_.end(piece) - from);
        total[0] = HWY_DYNAMIC_DISPATCH(ReduceRun)(x_.dtype, is_max_, begin + from * row_bytes, n);
        return;
      }
      std::fill_n(total, shape_.inner, Neutral());
      for (int64_t r = pieces_.begin(piece); r < pieces_.end(piece); ++r) {
        HWY_DYNAMIC_DISPATCH(CombineRow)(x_.dtype, is_max_, begin + r * row_bytes, total, shape_.inner);
      }
    });
    for (int64_t outer = 0; outer < shape_.outer; ++outer) {
      float* total = partials + outer * count * shape_.inner;
      for (int64_t piece = 1; piece < count; ++piece) {
        HWY_DYNAMIC_DISPATCH(CombineRow)(DType::kF32, is_max_, total + piece * shape_.inner, total, shape_.inner);
      }
      Store(total, shape_.inner, args.outputs[0], outer * shape_.inner);
    }
  }

 private:
  static constexpr int64_t kPartialsMax = 1 << 16;  // floats of workspace per outer row

  float Neutral() const { return is_max_ ? -std::numeric_limits<float>::infinity() : 0.0f; }

  void Store(const float* total, int64_t n, void* y, int64_t at) const {
    for (int64_t i = 0; i < n; ++i) {
      float value = total[i] * factor_;
      if (y_.dtype == DType::kBF16) {
        static_cast<BFloat16*>(y)[at + i] = ToBFloat16(value);
      } else {
        static_cast<float*>(y)[at + i] = value;
      }
    }
  }

  // Reduced axes with kept ones between them: rare; element by element in row-major order.
  void RunIrregular(const char* x, float* totals) const {
    std::fill_n(totals, y_.num_elements(), Neutral());
    int64_t n = x_.num_elements();
    for (int64_t i = 0; i < n; ++i) {
      int64_t rest = i, at = 0, stride = 1;
      for (size_t d = x_.shape.size(); d-- > 0;) {
        int64_t index = rest % x_.shape[d];
        rest /= x_.shape[d];
        if (shape_.is_reduced[d]) continue;
        at += index * stride;
        stride *= x_.shape[d];
      }
      float value = x_.dtype == DType::kBF16 ? ToFloat(reinterpret_cast<const BFloat16*>(x)[i]) : reinterpret_cast<const float*>(x)[i];
      if (is_max_) {
        if (value > totals[at] || value != value) totals[at] = value;
      } else {
        totals[at] += value;
      }
    }
  }

  const bool is_max_;
  const float factor_;
  const TensorSlice x_, y_;
  const ReduceShape shape_;
  Pieces pieces_;
};

KernelFactory MakeReduce(Reduction reduction) {
  return [reduction](const KernelSpec& spec) -> KernelOr {
    SpecCheck check(spec);
    check.Inputs(1, 1).Outputs(1, 1).Real(check.in(0), "x").Real(check.out(0), "y");
    std::vector<int64_t> axes = spec.attrs.Ints("axes");
    check.Expect(AxesFit(axes, check.in(0)), "axes of x");
    if (!check.ok()) return check.status();
    ReduceShape shape = ShapeOf(check.in(0), axes);
    Shape kept;
    for (size_t d = 0; d < shape.is_reduced.size(); ++d) {
      if (!shape.is_reduced[d]) kept.push_back(check.in(0).shape[d]);
    }
    check.Expect(kept == check.out(0).shape, "y with the axes that stay");
    if (!check.ok()) return check.status();
    return std::make_unique<ReduceKernel>(reduction, check.in(0), check.out(0), std::move(shape));
  };
}

// dx = dy where x equals the maximum y, else 0; equal maxima all get dy.
class ReduceMaxGradKernel final : public Kernel {
 public:
  ReduceMaxGradKernel(const TensorSlice& x, ReduceShape shape) : x_(x), shape_(std::move(shape)) {}

  void Run(const KernelArgs& args) override {
    int64_t n = x_.num_elements();
    for (int64_t i = 0; i < n; ++i) {
      int64_t rest = i, at = 0, stride = 1;
      for (size_t d = x_.shape.size(); d-- > 0;) {
        int64_t index = rest % x_.shape[d];
        rest /= x_.shape[d];
        if (shape_.is_reduced[d]) continue;
        at += index * stride;
        stride *= x_.shape[d];
      }
      bool equal = Read(args.inputs[0], i) == Read(args.inputs[1], at);
      Write(args.outputs[0], i, equal ? Read(args.inputs[2], at) : 0.0f);
    }
  }

 private:
  float Read(const void* p, int64_t i) const {
    return x_.dtype == DType::kBF16 ? ToFloat(static_cast<const BFloat16*>(p)[i]) : static_cast<const float*>(p)[i];
  }
  void Write(void* p, int64_t i, float value) const {
    if (x_.dtype == DType::kBF16) {
      static_cast<BFloat16*>(p)[i] = ToBFloat16(value);
    } else {
      static_cast<float*>(p)[i] = value;
    }
  }

  const TensorSlice x_;
  const ReduceShape shape_;
};

KernelOr MakeReduceMaxGrad(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(3, 3).Outputs(1, 1).Real(check.in(0), "x").SameType(check.in(0), check.in(1), "x and y");
  check.SameType(check.in(0), check.in(2), "x and dy").SameType(check.in(0), check.out(0), "x and dx");
  check.SameShape(check.in(0), check.out(0), "x and dx").Expect(AxesFit(spec.attrs.Ints("axes"), check.in(0)), "axes of x");
  if (!check.ok()) return check.status();
  return std::make_unique<ReduceMaxGradKernel>(check.in(0), ShapeOf(check.in(0), spec.attrs.Ints("axes")));
}

WEIR_REGISTER_KERNEL("cpu", "reduce_sum", MakeReduce(Reduction::kSum));
WEIR_REGISTER_KERNEL("cpu", "reduce_mean", MakeReduce(Reduction::kMean));
WEIR_REGISTER_KERNEL("cpu", "reduce_max", MakeReduce(Reduction::kMax));
WEIR_REGISTER_KERNEL("cpu", "reduce_max_grad", MakeReduceMaxGrad);

}  // namespace
}  // namespace weir
#endif  // HWY_ONCE
