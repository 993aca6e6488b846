// layer_norm and rms_norm over the last axis, with their gradients.
//
// Gradients of gamma and beta are sums over rows. Rows are cut into segments by shape alone, each
// segment sums into its own part of the workspace, and segments are added in order.
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/norm_check.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/spec_check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/norm.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

#ifndef WEIR_OPS_KERNELS_CPU_NORM_ONCE
#define WEIR_OPS_KERNELS_CPU_NORM_ONCE
namespace weir::kernels {

enum class NormKind : uint8_t { kLayer, kRms };

// The operands of the rows [begin, end) of one piece. gamma and beta are f32; beta, mean_out and
// rstd_out may be null. All row pointers are those of row 0.
struct NormRows {
  NormKind kind;
  DType dtype;
  int64_t begin, end, n;
  float epsilon;
  const void* x;
  const float* gamma;
  const float* beta;
  void* y;
  float* mean_out;
  float* rstd_out;
};

struct NormGradRows {
  NormKind kind;
  DType dtype;
  int64_t begin, end, n;
  const void* x;
  const float* gamma;
  const float* mean;  // null for rms_norm
  const float* rstd;
  const void* dy;
  void* dx;
  float* dgamma;  // sums of this segment, n elements each; dbeta is null for rms_norm
  float* dbeta;
};

}  // namespace weir::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void NormRow(const NormRows& rows, int64_t row) {
  const T* x = static_cast<const T*>(rows.x) + row * rows.n;
  T* y = static_cast<T*>(rows.y) + row * rows.n;
  const float count = static_cast<float>(rows.n);
  float mean = 0;
  if (rows.kind == NormKind::kLayer)
    mean = SumOver(
               rows.n, [](VF v) HWY_ATTR { return v; }, x) /
           count;
  const VF mean_v = hn::Set(DF(), mean);
  const float squares = SumOver(
      rows.n,
      [&](VF v) HWY_ATTR {
        VF centred = hn::Sub(v, mean_v);
        return hn::Mul(centred, centred);
      },
      x);
  const float rstd = 1.0f / std::sqrt(squares / count + rows.epsilon);
  const VF rstd_v = hn::Set(DF(), rstd);
  auto scaled = [&](VF v, VF g)
                    HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(v, mean_v), rstd_v), g); };
  if (rows.beta) {
    MapInto(
        y, rows.n, [&](VF v, VF g, VF b) HWY_ATTR { return hn::Add(scaled(v, g), b); }, x,
        rows.gamma, rows.beta);
  } else {
    MapInto(y, rows.n, scaled, x, rows.gamma);
  }
  if (rows.mean_out) rows.mean_out[row] = mean;
  if (rows.rstd_out) rows.rstd_out[row] = rstd;
}

void NormPiece(const NormRows& rows) {
  WithReal(rows.dtype, [&](auto* type) HWY_ATTR {
    for (int64_t row = rows.begin; row < rows.end; ++row)
      NormRow<std::remove_pointer_t<decltype(type)>>(rows, row);
  });
}

// dx = rstd (dy gamma - mean(dy gamma) - xhat mean(dy gamma xhat)); rms_norm lacks the middle term.
template <class T>
void NormGradRow(const NormGradRows& rows, int64_t row) {
  const T* x = static_cast<const T*>(rows.x) + row * rows.n;
  const T* dy = static_cast<const T*>(rows.dy) + row * rows.n;
  T* dx = static_cast<T*>(rows.dx) + row * rows.n;
  const float count = static_cast<float>(rows.n);
  const VF mean = hn::Set(DF(), rows.mean ? rows.mean[row] : 0.0f);
  const VF rstd = hn::Set(DF(), rows.rstd[row]);
  auto normal = [&](VF v) HWY_ATTR { return hn::Mul(hn::Sub(v, mean), rstd); };
  const float along = SumOver(
      rows.n, [&](VF v, VF g, VF d) HWY_ATTR { return hn::Mul(hn::Mul(d, g), normal(v)); }, x,
      rows.gamma, dy);
  float level = 0;
  if (rows.kind == NormKind::kLayer) {
    level = SumOver(
        rows.n, [](VF g, VF d) HWY_ATTR { return hn::Mul(d, g); }, rows.gamma, dy);
  }
  const VF level_v = hn::Set(DF(), level / count), along_v = hn::Set(DF(), along / count);
  const float* dgamma = rows.dgamma;
  MapInto(
      rows.dgamma, rows.n,
      [&](VF sum, VF v, VF d) HWY_ATTR { return hn::MulAdd(d, normal(v), sum); }, dgamma, x, dy);
  if (rows.dbeta) {
    const float* dbeta = rows.dbeta;
    MapInto(
        rows.dbeta, rows.n, [](VF sum, VF d) HWY_ATTR { return hn::Add(sum, d); }, dbeta, dy);
  }
  MapInto(
      dx, rows.n,
      [&](VF v, VF g, VF d) HWY_ATTR {
        return hn::Mul(rstd, hn::Sub(hn::MulSub(d, g, level_v), hn::Mul(normal(v), along_v)));
      },
      x, rows.gamma, dy);
}

void NormGradPiece(const NormGradRows& rows) {
  WithReal(rows.dtype, [&](auto* type) HWY_ATTR {
    for (int64_t row = rows.begin; row < rows.end; ++row)
      NormGradRow<std::remove_pointer_t<decltype(type)>>(rows, row);
  });
}

// out[i] = sum over segments of partials[segment * stride + i], in order, for i < n.
void SumSegments(const float* partials, int64_t stride, int64_t num_segments, DType dtype,
                 void* out_any, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    T* out = static_cast<T*>(out_any);
    const int64_t lanes = NumLanes();
    for (int64_t i = 0; i < n; i += lanes) {
      const int64_t left = std::min(lanes, n - i);
      VF sum = hn::Zero(DF());
      for (int64_t segment = 0; segment < num_segments; ++segment) {
        const float* from = partials + segment * stride + i;
        sum = hn::Add(sum, left == lanes ? LoadF(from) : LoadTail(from, left));
      }
      if (left == lanes) {
        StoreF(sum, out + i);
      } else {
        StoreTail(sum, out + i, left);
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(NormPiece);
HWY_EXPORT(NormGradPiece);
HWY_EXPORT(SumSegments);

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Returns a parameter as f32: itself, or converted into `buffer`.
const float* AsFloats(const TensorSlice& slice, const void* data, float* buffer) {
  if (!data || slice.dtype == DType::kF32) return static_cast<const float*>(data);
  ConvertReal(slice.dtype, DType::kF32, data, buffer, slice.num_elements());
  return buffer;
}

float* OutputOrNull(const KernelArgs& args, size_t i) {
  return i < args.outputs.size() ? static_cast<float*>(args.outputs[i]) : nullptr;
}

class NormKernel final : public Kernel {
 public:
  NormKernel(NormKind kind, const KernelSpec& spec, const TensorSlice& x, const TensorSlice& gamma,
             const TensorSlice& beta)
      : kind_(kind),
        dtype_(x.dtype),
        n_(SizeFromEnd(x, 1)),
        epsilon_(static_cast<float>(spec.attrs.Real("epsilon", 1e-5))),
        gamma_(gamma),
        beta_(beta),
        pieces_(Pieces::OfRows(LeadingElements(x, 1), n_, kHeavyPiece)) {}

  int64_t workspace_bytes() const override { return 2 * RoundUp(n_ * 4, kCacheLine); }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    float* buffer = static_cast<float*>(launch.workspace);
    const bool layer = kind_ == NormKind::kLayer;
    const void* beta = layer && args.inputs.size() > 2 ? args.inputs[2] : nullptr;
    NormRows rows{kind_,
                  dtype_,
                  0,
                  0,
                  n_,
                  epsilon_,
                  args.inputs[0],
                  AsFloats(gamma_, args.inputs[1], buffer),
                  AsFloats(beta_, beta, buffer + RoundUp(n_ * 4, kCacheLine) / 4),
                  args.outputs[0],
                  layer ? OutputOrNull(args, 1) : nullptr,
                  OutputOrNull(args, layer ? 2 : 1)};
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      NormRows part = rows;
      part.begin = pieces_.begin(piece);
      part.end = pieces_.end(piece);
      HWY_DYNAMIC_DISPATCH(NormPiece)(part);
    });
    return absl::OkStatus();
  }

 private:
  const NormKind kind_;
  const DType dtype_;
  const int64_t n_;
  const float epsilon_;
  const TensorSlice gamma_, beta_;
  const Pieces pieces_;
};

KernelFactory MakeNorm(NormKind kind) {
  return [kind](const KernelSpec& spec) -> KernelOr {
    const bool layer = kind == NormKind::kLayer;
    const absl::Status status = layer ? CheckLayerNorm(spec) : CheckRmsNorm(spec);
    if (!status.ok()) return status;
    const SpecCheck operands(spec);
    return std::make_unique<NormKernel>(kind, spec, operands.in(0), operands.in(1), operands.in(2));
  };
}

// Returns the rows of a segment: enough rows that adding the segments up is cheap, but few enough
// to share the work.
int64_t SegmentRows(int64_t rows) { return std::max<int64_t>(16, (rows + 63) / 64); }

class NormGradKernel final : public Kernel {
 public:
  NormGradKernel(NormKind kind, const TensorSlice& x, const TensorSlice& gamma,
                 const TensorSlice& dgamma, const TensorSlice* dbeta)
      : kind_(kind),
        dtype_(x.dtype),
        dgamma_type_(dgamma.dtype),
        dbeta_type_(dbeta ? std::optional(dbeta->dtype) : std::nullopt),
        n_(SizeFromEnd(x, 1)),
        gamma_(gamma),
        segments_{LeadingElements(x, 1), SegmentRows(LeadingElements(x, 1))},
        stride_(RoundUp(n_, 16)) {}

  int64_t workspace_bytes() const override { return (2 * segments_.count() + 1) * stride_ * 4; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const bool layer = kind_ == NormKind::kLayer;
    float* partials = static_cast<float*>(launch.workspace);
    const float* gamma =
        AsFloats(gamma_, args.inputs[1], partials + 2 * segments_.count() * stride_);
    NormGradRows rows{kind_,           dtype_,  0,       0,       n_,
                      args.inputs[0],  gamma,   nullptr, nullptr, args.inputs[layer ? 4 : 3],
                      args.outputs[0], nullptr, nullptr};
    if (layer) rows.mean = static_cast<const float*>(args.inputs[2]);
    rows.rstd = static_cast<const float*>(args.inputs[layer ? 3 : 2]);
    launch.team->For(segments_.count(), [&](int64_t segment) {
      NormGradRows part = rows;
      part.begin = segments_.begin(segment);
      part.end = segments_.end(segment);
      part.dgamma = partials + 2 * segment * stride_;
      std::memset(part.dgamma, 0, 2 * stride_ * sizeof(float));
      if (dbeta_type_) part.dbeta = part.dgamma + stride_;
      HWY_DYNAMIC_DISPATCH(NormGradPiece)(part);
    });
    HWY_DYNAMIC_DISPATCH(SumSegments)
    (partials, 2 * stride_, segments_.count(), dgamma_type_, args.outputs[1], n_);
    if (dbeta_type_) {
      HWY_DYNAMIC_DISPATCH(SumSegments)
      (partials + stride_, 2 * stride_, segments_.count(), *dbeta_type_, args.outputs[2], n_);
    }
    return absl::OkStatus();
  }

 private:
  const NormKind kind_;
  const DType dtype_, dgamma_type_;
  const std::optional<DType> dbeta_type_;
  const int64_t n_;
  const TensorSlice gamma_;
  const Pieces segments_;
  // The workspace holds, per segment, the sums of dgamma and dbeta, then gamma as f32.
  const int64_t stride_;
};

KernelFactory MakeNormGrad(NormKind kind) {
  return [kind](const KernelSpec& spec) -> KernelOr {
    const bool layer = kind == NormKind::kLayer;
    const absl::Status status = layer ? CheckLayerNormGrad(spec) : CheckRmsNormGrad(spec);
    if (!status.ok()) return status;
    const SpecCheck operands(spec);
    return std::make_unique<NormGradKernel>(kind, operands.in(0), operands.in(1), operands.out(1),
                                            operands.HasOut(2) ? &operands.out(2) : nullptr);
  };
}

WEIR_REGISTER_KERNEL("cpu", "layer_norm", MakeNorm(NormKind::kLayer));
WEIR_REGISTER_KERNEL("cpu", "rms_norm", MakeNorm(NormKind::kRms));
WEIR_REGISTER_KERNEL("cpu", "layer_norm_grad", MakeNormGrad(NormKind::kLayer));
WEIR_REGISTER_KERNEL("cpu", "rms_norm_grad", MakeNormGrad(NormKind::kRms));

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
