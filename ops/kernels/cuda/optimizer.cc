// adamw, sgd, sum_squares, clip_scale and adapt_loss_scale: factories of the kernels for CUDA. The
// CPU's kernels (ops/kernels/cpu/optimizer.cc) say what the results are.
#include "ops/kernels/cuda/optimizer.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/joined_kernels.h"
#include "ops/kernels/shape/optimizer_check.h"
#include "ops/kernels/shape/optimizer_step.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

float* Floats(const KernelArgs& args, size_t output) {
  return output < args.outputs.size() ? static_cast<float*>(args.outputs[output]) : nullptr;
}

// One tensor, or as many as one launch takes. The operands are the gradients, then the scale; and
// weight and moments of each tensor.
class AdamWKernel final : public CudaKernel {
 public:
  explicit AdamWKernel(absl::Span<const KernelSpec* const> specs) {
    for (const KernelSpec* spec : specs)
      tensors_.push_back({AdamSteps(spec->attrs), spec->inputs[0]->num_elements()});
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    AdamWork work;
    work.scale = static_cast<const float*>(args.inputs[tensors_.size()]);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const std::optional<AdamNumbers> numbers = tensors_[i].steps.At(args.step);
      if (!numbers.has_value()) continue;
      AdamWork::Tensor& tensor = work.tensors[work.num_tensors++];
      tensor = {*numbers,
                tensors_[i].n,
                static_cast<const float*>(args.inputs[i]),
                Floats(args, 3 * i),
                Floats(args, 3 * i + 1),
                Floats(args, 3 * i + 2),
                /*first_block=*/0};
    }
    LaunchAdam(work, stream);
    return absl::OkStatus();
  }

 private:
  struct Tensor {
    AdamSteps steps;
    int64_t n;
  };
  std::vector<Tensor> tensors_;
};

KernelOr MakeAdamW(const KernelSpec& spec) {
  if (absl::Status status = CheckAdamW(spec); !status.ok()) return status;
  const KernelSpec* const only = &spec;
  return std::make_unique<AdamWKernel>(absl::MakeConstSpan(&only, 1));
}

// The same for sgd. A tensor with momentum has its buffer behind its weight.
class SgdKernel final : public CudaKernel {
 public:
  explicit SgdKernel(absl::Span<const KernelSpec* const> specs) {
    for (const KernelSpec* spec : specs) {
      tensors_.push_back({SgdSteps(spec->attrs), spec->inputs[0]->num_elements(),
                          spec->outputs.size() > 1 && spec->outputs[1].has_value()});
    }
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    SgdWork work;
    work.scale = static_cast<const float*>(args.inputs[tensors_.size()]);
    size_t output = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Tensor& of = tensors_[i];
      float* const weight = Floats(args, output++);
      float* const buffer = of.has_buffer ? Floats(args, output++) : nullptr;
      const std::optional<SgdNumbers> numbers = of.steps.At(args.step, of.has_buffer);
      if (!numbers.has_value()) continue;
      work.tensors[work.num_tensors++] = {
          *numbers, of.n,   static_cast<const float*>(args.inputs[i]),
          weight,   buffer, /*first_block=*/0};
    }
    LaunchSgd(work, stream);
    return absl::OkStatus();
  }

 private:
  struct Tensor {
    SgdSteps steps;
    int64_t n;
    bool has_buffer;
  };
  std::vector<Tensor> tensors_;
};

KernelOr MakeSgd(const KernelSpec& spec) {
  if (absl::Status status = CheckSgd(spec); !status.ok()) return status;
  const KernelSpec* const only = &spec;
  return std::make_unique<SgdKernel>(absl::MakeConstSpan(&only, 1));
}

// Partial sums of fixed pieces of tensors, before they are added up in one order.
class SquaresKernel : public CudaKernel {
 protected:
  void AddTensor(const TensorSlice& tensor) {
    const int64_t n = tensor.num_elements();
    tensors_.push_back({nullptr, n, num_pieces_, tensor.dtype});
    num_pieces_ += (n + kSquaresPiece - 1) / kSquaresPiece;
  }

  void LaunchPieces(const KernelArgs& args, float* partials, device::CudaStream stream) const {
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
  }

  std::vector<SquaresWork::Tensor> tensors_;  // without addresses
  int64_t num_pieces_ = 0;
};

// The partial sums are added up in double precision.
class SumSquaresKernel final : public SquaresKernel {
 public:
  explicit SumSquaresKernel(const KernelSpec& spec) {
    for (const auto& input : spec.inputs) AddTensor(*input);
  }

  int64_t workspace_bytes() const override {
    return num_pieces_ * static_cast<int64_t>(sizeof(float));
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    auto* const partials = static_cast<float*>(workspace);
    LaunchPieces(args, partials, stream);
    LaunchTotal(partials, num_pieces_, Floats(args, 0), stream);
    return absl::OkStatus();
  }
};

// A sum of squares for each call, and then the sum of these, one after another.
class SumOfSumsKernel final : public SquaresKernel {
 public:
  explicit SumOfSumsKernel(absl::Span<const KernelSpec* const> specs) {
    for (const KernelSpec* spec : specs) {
      for (const auto& input : spec->inputs) AddTensor(*input);
      totals_.end_piece[totals_.num_tensors++] = num_pieces_;
    }
  }

  int64_t workspace_bytes() const override {
    return (num_pieces_ + totals_.num_tensors) * static_cast<int64_t>(sizeof(float));
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    TotalsWork totals = totals_;
    totals.totals = static_cast<float*>(workspace);
    float* const partials = totals.totals + totals.num_tensors;
    totals.partials = partials;
    totals.total = Floats(args, 0);
    LaunchPieces(args, partials, stream);
    LaunchTotals(totals, stream);
    return absl::OkStatus();
  }

 private:
  TotalsWork totals_;  // without addresses
};

KernelOr MakeSumSquares(const KernelSpec& spec) {
  if (absl::Status status = CheckSumSquares(spec); !status.ok()) return status;
  return std::make_unique<SumSquaresKernel>(spec);
}

// Every rank that runs this kernel sees the same total and loss, so all ranks decide alike. Whether
// a norm was not finite is known on the device alone, so the device keeps it from step to step.
class ClipScaleKernel final : public CudaKernel {
 public:
  explicit ClipScaleKernel(const Attributes& attrs)
      : clip_norm_(attrs.Real("clip_norm")),
        loss_scale_(static_cast<float>(attrs.Real("loss_scale", 1))),
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
    work.loss_scale = loss_scale_;
    if (args.inputs.size() > 1) work.factor = static_cast<const float*>(args.inputs[1]);
    if (args.inputs.size() > 2) work.loss = static_cast<const float*>(args.inputs[2]);
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
  const float loss_scale_;
  const float first_scale_;
  const UpdateRate updates_;
  const bool leaves_out_, stays_;
  int32_t* stopped_ = nullptr;  // from the first run on
};

KernelOr MakeClipScale(const KernelSpec& spec) {
  if (absl::Status status = CheckClipScale(spec); !status.ok()) return status;
  return std::make_unique<ClipScaleKernel>(spec.attrs);
}

class AdaptLossScaleKernel final : public CudaKernel {
 public:
  explicit AdaptLossScaleKernel(const Attributes& attrs) : step_(LossScaleStepOf(attrs)) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    LaunchAdaptLossScale(
        {step_, static_cast<const float*>(args.inputs[0]), Floats(args, 0), Floats(args, 1)},
        stream);
    return absl::OkStatus();
  }

 private:
  const LossScaleStep step_;
};

KernelOr MakeAdaptLossScale(const KernelSpec& spec) {
  if (absl::Status status = CheckAdaptLossScale(spec); !status.ok()) return status;
  return std::make_unique<AdaptLossScaleKernel>(spec.attrs);
}

}  // namespace

std::unique_ptr<Kernel> MakeAdamWOfMany(absl::Span<const KernelSpec* const> specs) {
  return std::make_unique<AdamWKernel>(specs);
}
std::unique_ptr<Kernel> MakeSgdOfMany(absl::Span<const KernelSpec* const> specs) {
  return std::make_unique<SgdKernel>(specs);
}
std::unique_ptr<Kernel> MakeSumOfSquareSums(absl::Span<const KernelSpec* const> specs) {
  return std::make_unique<SumOfSumsKernel>(specs);
}

namespace {

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "adamw", MakeAdamW);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "sgd", MakeSgd);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "sum_squares", MakeSumSquares);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "clip_scale", MakeClipScale);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "adapt_loss_scale", MakeAdaptLossScale);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
