// The update of weights (adamw, sgd) and the kernels before it (sum_squares, clip_scale), and
// adapt_loss_scale.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/optimizer_check.h"
#include "ops/kernels/shape/optimizer_step.h"
#include "ops/kernels/shape/pieces.h"
#include "runtime/base/loss_scale.h"
#include "runtime/base/schedule.h"
#include "runtime/base/update_rate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/optimizer.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

#ifndef WEIR_OPS_KERNELS_CPU_OPTIMIZER_ONCE
#define WEIR_OPS_KERNELS_CPU_OPTIMIZER_ONCE
namespace weir::kernels {

// The numbers of one step, with what the gradients are multiplied with.
struct AdamStep : AdamNumbers {
  float gradient_scale;
};
struct SgdStep : SgdNumbers {
  float gradient_scale;
};

}  // namespace weir::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE void AdamVector(const AdamStep& step, VF g, VF* w, VF* m, VF* v) {
  const DF d;
  g = hn::Mul(g, hn::Set(d, step.gradient_scale));
  *w = hn::Mul(*w, hn::Set(d, step.decay));
  *m = hn::MulAdd(hn::Sub(g, *m), hn::Set(d, step.beta1_rest), *m);
  *v = hn::MulAdd(hn::Mul(g, g), hn::Set(d, step.beta2_rest), hn::Mul(*v, hn::Set(d, step.beta2)));
  VF root = hn::Div(hn::Sqrt(*v), hn::Set(d, step.correction2_root));
  VF ratio = hn::Div(*m, hn::Add(root, hn::Set(d, step.epsilon)));
  *w = hn::NegMulAdd(ratio, hn::Set(d, step.step_size), *w);
}

void AdamRange(const AdamStep& step, const float* g, float* w, float* m, float* v, int64_t n) {
  const int64_t lanes = NumLanes();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    VF weight = LoadF(w + i), first = LoadF(m + i), second = LoadF(v + i);
    AdamVector(step, LoadF(g + i), &weight, &first, &second);
    StoreF(weight, w + i);
    StoreF(first, m + i);
    StoreF(second, v + i);
  }
  if (i == n) return;
  VF weight = LoadTail(w + i, n - i), first = LoadTail(m + i, n - i),
     second = LoadTail(v + i, n - i);
  AdamVector(step, LoadTail(g + i, n - i), &weight, &first, &second);
  StoreTail(weight, w + i, n - i);
  StoreTail(first, m + i, n - i);
  StoreTail(second, v + i, n - i);
}

HWY_INLINE VF Decayed(const SgdStep& step, VF g, VF w) {
  const DF d;
  return hn::MulAdd(w, hn::Set(d, step.weight_decay), hn::Mul(g, hn::Set(d, step.gradient_scale)));
}

// `buffer` is null without momentum.
void SgdRange(const SgdStep& step, const float* g, float* w, float* buffer, int64_t n) {
  const float* old_w = w;
  const float* old_buffer = buffer;
  const VF rate = hn::Set(DF(), step.rate), keep = hn::Set(DF(), step.momentum);
  switch (step.kind) {
    case Momentum::kNone:
      return MapInto(
          w, n,
          [&](VF x, VF grad) HWY_ATTR { return hn::NegMulAdd(Decayed(step, grad, x), rate, x); },
          old_w, g);
    case Momentum::kFirst:
      MapInto(
          buffer, n, [&](VF x, VF grad) HWY_ATTR { return Decayed(step, grad, x); }, old_w, g);
      break;
    case Momentum::kLater:
      MapInto(
          buffer, n,
          [&](VF x, VF grad, VF b) HWY_ATTR { return hn::MulAdd(b, keep, Decayed(step, grad, x)); },
          old_w, g, old_buffer);
      break;
  }
  MapInto(
      w, n, [&](VF x, VF b) HWY_ATTR { return hn::NegMulAdd(b, rate, x); }, old_w, old_buffer);
}

float SquareSum(DType dtype, const void* x_any, int64_t n) {
  float sum = 0;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    sum = SumOver(
        n, [](VF v) HWY_ATTR { return hn::Mul(v, v); }, x);
  });
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(AdamRange);
HWY_EXPORT(SgdRange);
HWY_EXPORT(SquareSum);

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// The piece is so small that it stays in the second-level cache between passes.
constexpr int64_t kUpdatePiece = 16384;

class AdamWKernel final : public Kernel {
 public:
  AdamWKernel(const Attributes& attrs, int64_t n) : steps_(attrs), pieces_{n, kUpdatePiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const std::optional<AdamNumbers> numbers = steps_.At(args.step);
    const float scale = *static_cast<const float*>(args.inputs[1]);
    if (!numbers.has_value() || scale < 0) return absl::OkStatus();
    const AdamStep step{*numbers, scale};
    const float* g = static_cast<const float*>(args.inputs[0]);
    float* w = static_cast<float*>(args.outputs[0]);
    float* m = static_cast<float*>(args.outputs[1]);
    float* v = static_cast<float*>(args.outputs[2]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      int64_t at = pieces_.begin(piece);
      HWY_DYNAMIC_DISPATCH(AdamRange)(step, g + at, w + at, m + at, v + at, pieces_.length(piece));
    });
    return absl::OkStatus();
  }

 private:
  const AdamSteps steps_;
  const Pieces pieces_;
};

KernelOr MakeAdamW(const KernelSpec& spec) {
  if (absl::Status status = CheckAdamW(spec); !status.ok()) return status;
  return std::make_unique<AdamWKernel>(spec.attrs, spec.inputs[0]->num_elements());
}

class SgdKernel final : public Kernel {
 public:
  SgdKernel(const Attributes& attrs, int64_t n) : steps_(attrs), pieces_{n, kUpdatePiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    float* buffer = args.outputs.size() > 1 ? static_cast<float*>(args.outputs[1]) : nullptr;
    const std::optional<SgdNumbers> numbers = steps_.At(args.step, buffer != nullptr);
    const float scale = *static_cast<const float*>(args.inputs[1]);
    if (!numbers.has_value() || scale < 0) return absl::OkStatus();
    const SgdStep step{*numbers, scale};
    const float* g = static_cast<const float*>(args.inputs[0]);
    float* w = static_cast<float*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      int64_t at = pieces_.begin(piece);
      HWY_DYNAMIC_DISPATCH(SgdRange)
      (step, g + at, w + at, buffer ? buffer + at : nullptr, pieces_.length(piece));
    });
    return absl::OkStatus();
  }

 private:
  const SgdSteps steps_;
  const Pieces pieces_;
};

KernelOr MakeSgd(const KernelSpec& spec) {
  if (absl::Status status = CheckSgd(spec); !status.ok()) return status;
  return std::make_unique<SgdKernel>(spec.attrs, spec.inputs[0]->num_elements());
}

// Partial sums of fixed pieces are added up in order in double precision.
class SumSquaresKernel final : public Kernel {
 public:
  explicit SumSquaresKernel(const KernelSpec& spec) {
    for (const auto& input : spec.inputs) {
      inputs_.push_back(
          Input{input->dtype, Pieces{input->num_elements(), kLightPiece}, num_partials_});
      num_partials_ += inputs_.back().pieces.count();
    }
  }
  int64_t workspace_bytes() const override {
    return num_partials_ * static_cast<int64_t>(sizeof(float));
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    float* partials = static_cast<float*>(launch.workspace);
    launch.team->For(num_partials_, [&](int64_t piece) {
      size_t i = inputs_.size() - 1;
      while (inputs_[i].first_partial > piece) --i;
      const Input& input = inputs_[i];
      int64_t local = piece - input.first_partial;
      const char* x = static_cast<const char*>(args.inputs[i]) +
                      input.pieces.begin(local) * SizeOf(input.dtype);
      partials[piece] = HWY_DYNAMIC_DISPATCH(SquareSum)(input.dtype, x, input.pieces.length(local));
    });
    double total = 0;
    for (int64_t i = 0; i < num_partials_; ++i) total += partials[i];
    *static_cast<float*>(args.outputs[0]) = static_cast<float>(total);
    return absl::OkStatus();
  }

 private:
  struct Input {
    DType dtype;
    Pieces pieces;
    int64_t first_partial;
  };
  std::vector<Input> inputs_;
  int64_t num_partials_ = 0;
};

KernelOr MakeSumSquares(const KernelSpec& spec) {
  if (absl::Status status = CheckSumSquares(spec); !status.ok()) return status;
  return std::make_unique<SumSquaresKernel>(spec);
}

// Every rank that runs this kernel sees the same total and loss, so all ranks decide alike.
class ClipScaleKernel final : public Kernel {
 public:
  explicit ClipScaleKernel(const Attributes& attrs)
      : clip_norm_(attrs.Real("clip_norm")),
        loss_scale_(static_cast<float>(attrs.Real("loss_scale", 1))),
        first_scale_(static_cast<float>(attrs.Real("first_scale", 1))),
        updates_(UpdateRate::FromAttributes(attrs)),
        leaves_out_(attrs.Str("on_nonfinite", "stop") != "continue"),
        stays_(attrs.Str("on_nonfinite", "stop") == "stop") {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    float norm = std::sqrt(*static_cast<const float*>(args.inputs[0]));
    const bool finite = std::isfinite(norm);
    const bool has_factor = args.inputs.size() > 1 && args.inputs[1] != nullptr;
    const float factor = has_factor ? *static_cast<const float*>(args.inputs[1]) : loss_scale_;
    const bool has_loss = args.inputs.size() > 2 && args.inputs[2] != nullptr;
    const bool loss_is_finite =
        !has_loss || std::isfinite(*static_cast<const float*>(args.inputs[2]));
    // Gradients that overflow because of the factor are no error.
    const bool overflows = has_loss && loss_is_finite && factor >= kOverflowScaleLeast;
    norm /= factor;
    const bool counts_more = first_scale_ != 1 && updates_.OptimizerStep(args.step) == 0;
    if (counts_more) norm *= first_scale_;
    float scale = 1;
    if (clip_norm_ > 0) {
      scale = static_cast<float>(clip_norm_) / (norm + 1e-6f);
      if (scale > 1) scale = 1;  // a NaN stays
    }
    if (counts_more) scale *= first_scale_;
    scale /= factor;
    if (stays_ && (!loss_is_finite || (!finite && !overflows))) stopped_ = true;
    if (stopped_ || (!finite && (leaves_out_ || has_loss)))
      scale = has_loss && (stopped_ || !loss_is_finite) ? kNothingChanges : kNoUpdate;
    *static_cast<float*>(args.outputs[0]) = scale;
    if (args.outputs.size() > 1 && args.outputs[1]) *static_cast<float*>(args.outputs[1]) = norm;
    return absl::OkStatus();
  }

 private:
  const double clip_norm_;
  const float loss_scale_;
  const float first_scale_;
  const UpdateRate updates_;
  const bool leaves_out_;
  const bool stays_;
  // True from the first norm or loss on that was not finite, without overflows: weights stay as
  // they were before.
  bool stopped_ = false;
};

KernelOr MakeClipScale(const KernelSpec& spec) {
  if (absl::Status status = CheckClipScale(spec); !status.ok()) return status;
  return std::make_unique<ClipScaleKernel>(spec.attrs);
}

// Every rank that runs this kernel sees the same scale, so all ranks have the same factor.
class AdaptLossScaleKernel final : public Kernel {
 public:
  explicit AdaptLossScaleKernel(const Attributes& attrs) : step_(LossScaleStepOf(attrs)) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const float scale = *static_cast<const float*>(args.inputs[0]);
    if (scale == kNothingChanges) return absl::OkStatus();
    const bool finite = scale != kNoUpdate;
    float* factor = static_cast<float*>(args.outputs[0]);
    float* finite_steps = static_cast<float*>(args.outputs[1]);
    *finite_steps = finite ? *finite_steps + 1 : 0;
    // A factor that begins below the floor stays as it is.
    if (!finite) *factor = std::max(*factor * step_.backoff, std::min(*factor, kLossScaleFloor));
    if (*finite_steps < step_.growth_interval) return absl::OkStatus();
    *finite_steps = 0;
    if (std::isfinite(*factor * step_.growth)) *factor *= step_.growth;
    return absl::OkStatus();
  }

 private:
  const LossScaleStep step_;
};

KernelOr MakeAdaptLossScale(const KernelSpec& spec) {
  if (absl::Status status = CheckAdaptLossScale(spec); !status.ok()) return status;
  return std::make_unique<AdaptLossScaleKernel>(spec.attrs);
}

WEIR_REGISTER_KERNEL("cpu", "adamw", MakeAdamW);
WEIR_REGISTER_KERNEL("cpu", "sgd", MakeSgd);
WEIR_REGISTER_KERNEL("cpu", "sum_squares", MakeSumSquares);
WEIR_REGISTER_KERNEL("cpu", "clip_scale", MakeClipScale);
WEIR_REGISTER_KERNEL("cpu", "adapt_loss_scale", MakeAdaptLossScale);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
