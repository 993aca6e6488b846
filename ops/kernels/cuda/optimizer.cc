// adamw, sgd, sum_squares and clip_scale: factories of the kernels for CUDA. The CPU's kernels
// (ops/kernels/cpu/optimizer.cc) say what the results are.
#include "ops/kernels/cuda/optimizer.h"

#include <cmath>
#include <vector>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/optimizer_check.h"
#include "runtime/base/schedule.h"
#include "runtime/base/update_rate.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

float* Floats(const KernelArgs& args, size_t output) {
  return output < args.outputs.size() ? static_cast<float*>(args.outputs[output]) : nullptr;
}

class AdamWKernel final : public CudaKernel {
 public:
  AdamWKernel(const Attributes& attrs, int64_t n)
      : schedule_(LearningRateSchedule::FromAttributes(attrs)),
        updates_(UpdateRate::FromAttributes(attrs)),
        beta1_(attrs.Real("beta1", 0.9)),
        beta2_(attrs.Real("beta2", 0.999)),
        epsilon_(attrs.Real("epsilon", 1e-8)),
        weight_decay_(attrs.Real("weight_decay", 0.01)),
        n_(n) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    const int64_t number = updates_.OptimizerStep(args.step);
    if (number < 0) return absl::OkStatus();
    const double t = static_cast<double>(number) + 1;
    const double rate = schedule_.At(number);
    AdamWork work;
    work.scale = static_cast<const float*>(args.inputs[1]);
    work.decay = static_cast<float>(1 - rate * weight_decay_);
    work.beta1_rest = static_cast<float>(1 - beta1_);
    work.beta2 = static_cast<float>(beta2_);
    work.beta2_rest = static_cast<float>(1 - beta2_);
    work.correction2_root = static_cast<float>(std::sqrt(1 - std::pow(beta2_, t)));
    work.epsilon = static_cast<float>(epsilon_);
    work.step_size = static_cast<float>(rate / (1 - std::pow(beta1_, t)));
    work.n = n_;
    work.gradient = static_cast<const float*>(args.inputs[0]);
    work.weight = Floats(args, 0);
    work.first = Floats(args, 1);
    work.second = Floats(args, 2);
    LaunchAdam(work, stream);
    return absl::OkStatus();
  }

 private:
  const LearningRateSchedule schedule_;
  const UpdateRate updates_;
  const double beta1_, beta2_, epsilon_, weight_decay_;
  const int64_t n_;
};

KernelOr MakeAdamW(const KernelSpec& spec) {
  if (absl::Status status = CheckAdamW(spec); !status.ok()) return status;
  return std::make_unique<AdamWKernel>(spec.attrs, spec.inputs[0]->num_elements());
}

class SgdKernel final : public CudaKernel {
 public:
  SgdKernel(const Attributes& attrs, int64_t n)
      : schedule_(LearningRateSchedule::FromAttributes(attrs)),
        updates_(UpdateRate::FromAttributes(attrs)),
        momentum_(attrs.Real("momentum")),
        weight_decay_(attrs.Real("weight_decay")),
        n_(n) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    const int64_t number = updates_.OptimizerStep(args.step);
    if (number < 0) return absl::OkStatus();
    SgdWork work;
    work.scale = static_cast<const float*>(args.inputs[1]);
    work.weight_decay = static_cast<float>(weight_decay_);
    work.momentum = static_cast<float>(momentum_);
    work.rate = static_cast<float>(schedule_.At(number));
    work.n = n_;
    work.gradient = static_cast<const float*>(args.inputs[0]);
    work.weight = Floats(args, 0);
    work.buffer = Floats(args, 1);
    work.kind = work.buffer == nullptr ? Momentum::kNone
                : number == 0          ? Momentum::kFirst
                                       : Momentum::kLater;
    LaunchSgd(work, stream);
    return absl::OkStatus();
  }

 private:
  const LearningRateSchedule schedule_;
  const UpdateRate updates_;
  const double momentum_, weight_decay_;
  const int64_t n_;
};

KernelOr MakeSgd(const KernelSpec& spec) {
  if (absl::Status status = CheckSgd(spec); !status.ok()) return status;
  return std::make_unique<SgdKernel>(spec.attrs, spec.inputs[0]->num_elements());
}

// Partial sums of fixed pieces are added up in one order in double precision.
class SumSquaresKernel final : public CudaKernel {
 public:
  explicit SumSquaresKernel(const KernelSpec& spec) {
    for (const auto& input : spec.inputs) {
      const int64_t n = input->num_elements();
      tensors_.push_back({nullptr, n, num_pieces_, input->dtype});
      num_pieces_ += (n + kSquaresPiece - 1) / kSquaresPiece;
    }
  }

  int64_t workspace_bytes() const override {
    return num_pieces_ * static_cast<int64_t>(sizeof(float));
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    auto* const partials = static_cast<float*>(workspace);
    for (size_t first = 0; first < tensors_.size(); first += SquaresWork::kTensorsMax) {
      const size_t end = std::min(first + SquaresWork::kTensorsMax, tensors_.size());
      SquaresWork work;
      work.partials = partials;
      work.first_piece = tensors_[first].first_piece;
      work.num_pieces =
          (end < tensors_.size() ? tensors_[end].first_piece : num_pieces_) - work.first_piece;
      for (size_t i = first; i < end; ++i) {
        work.tensors[work.num_tensors] = tensors_[i];
        work.tensors[work.num_tensors++].data = args.inputs[i];
      }
      LaunchSquares(work, stream);
    }
    LaunchTotal(partials, num_pieces_, Floats(args, 0), stream);
    return absl::OkStatus();
  }

 private:
  std::vector<SquaresWork::Tensor> tensors_;  // without addresses
  int64_t num_pieces_ = 0;
};

KernelOr MakeSumSquares(const KernelSpec& spec) {
  if (absl::Status status = CheckSumSquares(spec); !status.ok()) return status;
  return std::make_unique<SumSquaresKernel>(spec);
}

// Every rank that runs this kernel sees the same total, so all ranks decide alike. Whether a norm
// was not finite is known on the device alone, so the device keeps it from step to step.
class ClipScaleKernel final : public CudaKernel {
 public:
  explicit ClipScaleKernel(const Attributes& attrs)
      : clip_norm_(attrs.Real("clip_norm")),
        first_scale_(static_cast<float>(attrs.Real("first_scale", 1))),
        updates_(UpdateRate::FromAttributes(attrs)),
        leaves_out_(attrs.Str("on_nonfinite", "stop") != "continue"),
        stays_(attrs.Str("on_nonfinite", "stop") == "stop") {}
  ~ClipScaleKernel() override {
    if (stopped_ != nullptr) FreeFlag(stopped_);
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    ClipScaleWork work;
    work.is_first = stopped_ == nullptr;
    if (work.is_first) stopped_ = NewFlag();
    if (stopped_ == nullptr) {
      return absl::ResourceExhaustedError(
          "The kernel of clip_scale expects 4 bytes of the device's memory besides what the plan "
          "counts, and the device has none left. Leave more memory free on the device.");
    }
    work.stopped = stopped_;
    work.total = static_cast<const float*>(args.inputs[0]);
    work.clip_norm = static_cast<float>(clip_norm_);
    if (first_scale_ != 1 && updates_.OptimizerStep(args.step) == 0)
      work.first_scale = first_scale_;
    work.leaves_out = leaves_out_;
    work.stays = stays_;
    work.scale = Floats(args, 0);
    work.norm = Floats(args, 1);
    LaunchClipScale(work, stream);
    return absl::OkStatus();
  }

 private:
  const double clip_norm_;
  const float first_scale_;
  const UpdateRate updates_;
  const bool leaves_out_, stays_;
  int32_t* stopped_ = nullptr;  // from the first run on
};

KernelOr MakeClipScale(const KernelSpec& spec) {
  if (absl::Status status = CheckClipScale(spec); !status.ok()) return status;
  return std::make_unique<ClipScaleKernel>(spec.attrs);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "adamw", MakeAdamW);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "sgd", MakeSgd);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "sum_squares", MakeSumSquares);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "clip_scale", MakeClipScale);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
