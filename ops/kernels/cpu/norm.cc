// layer_norm and rms_norm over the last axis, and their gradients. Statistics are f32. The gradients
// of gamma and beta are sums over rows: pieces of rows fixed by shape, added in order.
#include <algorithm>
#include <cmath>

#include "ops/kernels/cpu/pieces.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/cpu/spec_check.h"
#include "ops/kernels/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/norm.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

#ifndef WEIR_NORM_ROW
#define WEIR_NORM_ROW
namespace weir {
namespace {

// One row in, one row out; pointers to the storage type of x. `beta`, `mean_out`, `rstd_out` may be null.
struct NormRow {
  const void* x;
  const void* gamma;
  const void* beta;
  void* y;
  float* mean_out;
  float* rstd_out;
};

// dgamma and dbeta are running f32 sums; dbeta may be null.
struct NormGradRow {
  const void* x;
  const void* gamma;
  const void* dy;
  void* dx;
  float* dgamma;
  float* dbeta;
  float mean, rstd;  // mean is 0 for rms_norm
};

}  // namespace
}  // namespace weir
#endif  // WEIR_NORM_ROW

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void Normalise(const NormRow& row, float mean, float rstd, int64_t n) {
  const T* x = static_cast<const T*>(row.x);
  const T* gamma = static_cast<const T*>(row.gamma);
  T* y = static_cast<T*>(row.y);
  const VF m = hn::Set(DF(), mean), r = hn::Set(DF(), rstd);
  if (row.beta != nullptr) {
    const T* beta = static_cast<const T*>(row.beta);
    MapInto(y, n, [&](VF a, VF g, VF b) HWY_ATTR { return hn::MulAdd(hn::Mul(hn::Sub(a, m), r), g, b); }, x, gamma, beta);
  } else {
    MapInto(y, n, [&](VF a, VF g) HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(a, m), r), g); }, x, gamma);
  }
}

void LayerNormRow(DType dtype, const NormRow& row, float epsilon, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = static_cast<const T*>(row.x);
    float mean = SumOver(n, [](VF a) HWY_ATTR { return a; }, x) / static_cast<float>(n);
    const VF m = hn::Set(DF(), mean);
    float var = SumOver(n, [&](VF a) HWY_ATTR { return hn::Mul(hn::Sub(a, m), hn::Sub(a, m)); }, x) / static_cast<float>(n);
    float rstd = 1.0f / std::sqrt(var + epsilon);
    Normalise<T>(row, mean, rstd, n);
    if (row.mean_out != nullptr) *row.mean_out = mean;
    if (row.rstd_out != nullptr) *row.rstd_out = rstd;
  });
}

void RmsNormRow(DType dtype, const NormRow& row, float epsilon, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = static_cast<const T*>(row.x);
    float square = SumOver(n, [](VF a) HWY_ATTR { return hn::Mul(a, a); }, x) / static_cast<float>(n);
    float rstd = 1.0f / std::sqrt(square + epsilon);
    Normalise<T>(row, 0.0f, rstd, n);
    if (row.rstd_out != nullptr) *row.rstd_out = rstd;
  });
}

// With g = dy gamma and xhat = (x - mean) rstd: dx = rstd (g - mean(g) - xhat mean(g xhat)); rms_norm has no mean(g).
void NormGradOneRow(DType dtype, bool centred, const NormGradRow& row, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = static_cast<const T*>(row.x);
    const T* gamma = static_cast<const T*>(row.gamma);
    const T* dy = static_cast<const T*>(row.dy);
    const VF m = hn::Set(DF(), row.mean), r = hn::Set(DF(), row.rstd);
    const float scale = 1.0f / static_cast<float>(n);
    float sum_g = 0;
    if (centred) sum_g = scale * SumOver(n, [](VF d, VF g) HWY_ATTR { return hn::Mul(d, g); }, dy, gamma);
    float sum_gx = scale * SumOver(n, [&](VF d, VF g, VF a) HWY_ATTR { return hn::Mul(hn::Mul(d, g), hn::Mul(hn::Sub(a, m), r)); },
                                   dy, gamma, x);
    const VF c1 = hn::Set(DF(), sum_g), c2 = hn::Set(DF(), sum_gx);
    MapInto(static_cast<T*>(row.dx), n,
            [&](VF d, VF g, VF a) HWY_ATTR {
              VF xhat = hn::Mul(hn::Sub(a, m), r);
              return hn::Mul(r, hn::NegMulAdd(xhat, c2, hn::Sub(hn::Mul(d, g), c1)));
            },
            dy, gamma, x);
    const float* dgamma = row.dgamma;
    MapInto(row.dgamma, n, [&](VF t, VF d, VF a) HWY_ATTR { return hn::MulAdd(d, hn::Mul(hn::Sub(a, m), r), t); }, dgamma, dy, x);
    if (row.dbeta != nullptr) {
      const float* dbeta = row.dbeta;
      MapInto(row.dbeta, n, [](VF t, VF d) HWY_ATTR { return hn::Add(t, d); }, dbeta, dy);
    }
  });
}

void AddInto(const float* x, float* total, int64_t n) {
  const float* before = total;
  MapInto(total, n, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); }, before, x);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(LayerNormRow);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(NormGradOneRow);
HWY_EXPORT(AddInto);

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
enum class Norm { kLayer, kRms };

const char* RowAt(const void* base, int64_t row, int64_t row_bytes) { return static_cast<const char*>(base) + row * row_bytes; }
char* RowAt(void* base, int64_t row, int64_t row_bytes) { return static_cast<char*>(base) + row * row_bytes; }

class NormKernel final : public Kernel {
 public:
  NormKernel(Norm norm, const TensorSlice& x, float epsilon)
      : norm_(norm), dtype_(x.dtype), epsilon_(epsilon), width_(SizeFromEnd(x, 1)), rows_(LeadingElements(x, 1)),
        pieces_(Pieces::OfRows(rows_, width_, kHeavyPiece)) {}

  void Run(const KernelArgs& args) override {
    if (width_ == 0) return;
    const bool layer = norm_ == Norm::kLayer;
    const int64_t bytes = width_ * SizeOf(dtype_);
    float* mean = layer && args.outputs.size() > 1 ? static_cast<float*>(args.outputs[1]) : nullptr;
    size_t rstd_at = layer ? 2 : 1;
    float* rstd = args.outputs.size() > rstd_at ? static_cast<float*>(args.outputs[rstd_at]) : nullptr;
    const void* beta = layer && args.inputs.size() > 2 ? args.inputs[2] : nullptr;
    args.team->For(pieces_.count(), [&](int64_t piece) {
      for (int64_t r = pieces_.begin(piece); r < pieces_.end(piece); ++r) {
        NormRow row{RowAt(args.inputs[0], r, bytes), args.inputs[1], beta, RowAt(args.outputs[0], r, bytes),
                    mean ? mean + r : nullptr, rstd ? rstd + r : nullptr};
        if (layer) {
          HWY_DYNAMIC_DISPATCH(LayerNormRow)(dtype_, row, epsilon_, width_);
        } else {
          HWY_DYNAMIC_DISPATCH(RmsNormRow)(dtype_, row, epsilon_, width_);
        }
      }
    });
  }

 private:
  const Norm norm_;
  const DType dtype_;
  const float epsilon_;
  const int64_t width_, rows_;
  const Pieces pieces_;
};

class NormGradKernel final : public Kernel {
 public:
  NormGradKernel(Norm norm, const TensorSlice& x, DType sums)
      : norm_(norm), dtype_(x.dtype), sums_(sums), width_(SizeFromEnd(x, 1)), rows_(LeadingElements(x, 1)) {
    // At most 64 partial sums, so that adding them up costs little beside the rows.
    int64_t size = std::max<int64_t>((rows_ + 63) / 64, std::max<int64_t>(1, kHeavyPiece / std::max<int64_t>(1, width_)));
    pieces_ = Pieces{rows_, size};
  }

  int64_t workspace_bytes() const override { return std::max<int64_t>(1, pieces_.count()) * 2 * width_ * 4; }

  void Run(const KernelArgs& args) override {
    if (width_ == 0) return;
    const bool layer = norm_ == Norm::kLayer;
    const void* dy = args.inputs[layer ? 4 : 3];
    const float* mean = layer ? static_cast<const float*>(args.inputs[2]) : nullptr;
    const float* rstd = static_cast<const float*>(args.inputs[layer ? 3 : 2]);
    void* dbeta = layer && args.outputs.size() > 2 ? args.outputs[2] : nullptr;
    const int64_t bytes = width_ * SizeOf(dtype_);
    float* sums = static_cast<float*>(args.workspace);
    std::fill_n(sums, std::max<int64_t>(1, pieces_.count()) * 2 * width_, 0.0f);
    args.team->For(pieces_.count(), [&](int64_t piece) {
      float* own = sums + piece * 2 * width_;
      for (int64_t r = pieces_.begin(piece); r < pieces_.end(piece); ++r) {
        NormGradRow row{RowAt(args.inputs[0], r, bytes), args.inputs[1], RowAt(dy, r, bytes), RowAt(args.outputs[0], r, bytes),
                        own, dbeta ? own + width_ : nullptr, mean ? mean[r] : 0.0f, rstd[r]};
        HWY_DYNAMIC_DISPATCH(NormGradOneRow)(dtype_, layer, row, width_);
      }
    });
    for (int64_t piece = 1; piece < pieces_.count(); ++piece) {
      HWY_DYNAMIC_DISPATCH(AddInto)(sums + piece * 2 * width_, sums, 2 * width_);
    }
    Store(sums, args.outputs[1]);
    if (dbeta != nullptr) Store(sums + width_, dbeta);
  }

 private:
  void Store(const float* from, void* to) const {
    if (to == nullptr) return;
    for (int64_t i = 0; i < width_; ++i) {
      if (sums_ == DType::kBF16) {
        static_cast<BFloat16*>(to)[i] = ToBFloat16(from[i]);
      } else {
        static_cast<float*>(to)[i] = from[i];
      }
    }
  }

  const Norm norm_;
  const DType dtype_, sums_;
  const int64_t width_, rows_;
  Pieces pieces_;
};

SpecCheck CheckNorm(const KernelSpec& spec, int inputs_max, int outputs_max) {
  SpecCheck check(spec);
  check.Inputs(2, inputs_max).Outputs(1, outputs_max).Real(check.in(0), "x").MinRank(check.in(0), 1, "x");
  check.SameType(check.in(0), check.in(1), "x and gamma").SameType(check.in(0), check.out(0), "x and y");
  check.SameShape(check.in(0), check.out(0), "x and y");
  check.Expect(check.in(1).num_elements() == SizeFromEnd(check.in(0), 1), "gamma as wide as x");
  return check;
}

KernelFactory MakeNorm(Norm norm) {
  return [norm](const KernelSpec& spec) -> KernelOr {
    SpecCheck check = CheckNorm(spec, norm == Norm::kLayer ? 3 : 2, norm == Norm::kLayer ? 3 : 2);
    if (norm == Norm::kLayer && check.HasIn(2)) check.SameType(check.in(0), check.in(2), "x and beta").SameShape(check.in(1), check.in(2), "gamma and beta");
    for (int i = 1; i < 3; ++i) {
      if (check.HasOut(i)) check.Is(check.out(i), DType::kF32, "statistics").Expect(check.out(i).num_elements() == LeadingElements(check.in(0), 1), "statistics by row");
    }
    if (!check.ok()) return check.status();
    return std::make_unique<NormKernel>(norm, check.in(0), static_cast<float>(spec.attrs.Real("epsilon", 1e-5)));
  };
}

KernelFactory MakeNormGrad(Norm norm) {
  return [norm](const KernelSpec& spec) -> KernelOr {
    int inputs = norm == Norm::kLayer ? 5 : 4;
    SpecCheck check = CheckNorm(spec, inputs, norm == Norm::kLayer ? 3 : 2);
    check.Inputs(inputs, inputs).Outputs(2, norm == Norm::kLayer ? 3 : 2);
    int64_t rows = LeadingElements(check.in(0), 1);
    for (int i = 2; i < inputs - 1; ++i) check.Is(check.in(i), DType::kF32, "statistics").Expect(check.in(i).num_elements() == rows, "statistics by row");
    check.SameShape(check.in(0), check.in(inputs - 1), "x and dy").SameType(check.in(0), check.in(inputs - 1), "x and dy");
    check.Real(check.out(1), "dgamma").SameShape(check.in(1), check.out(1), "gamma and dgamma");
    if (check.HasOut(2)) check.SameType(check.out(1), check.out(2), "dgamma and dbeta").SameShape(check.in(1), check.out(2), "gamma and dbeta");
    if (!check.ok()) return check.status();
    return std::make_unique<NormGradKernel>(norm, check.in(0), check.out(1).dtype);
  };
}

WEIR_REGISTER_KERNEL("cpu", "layer_norm", MakeNorm(Norm::kLayer));
WEIR_REGISTER_KERNEL("cpu", "rms_norm", MakeNorm(Norm::kRms));
WEIR_REGISTER_KERNEL("cpu", "layer_norm_grad", MakeNormGrad(Norm::kLayer));
WEIR_REGISTER_KERNEL("cpu", "rms_norm_grad", MakeNormGrad(Norm::kRms));

}  // namespace
}  // namespace weir
#endif  // HWY_ONCE
