// softmax_cross_entropy and its parts, and accuracy: factories of the kernels for CUDA. The CPU's
// kernels (ops/kernels/cpu/softmax_cross_entropy.cc) say what the results are.
#include "ops/kernels/cuda/cross_entropy.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/logits.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

float* FloatsOrNull(const KernelArgs& args, size_t output) {
  return output < args.outputs.size() ? static_cast<float*>(args.outputs[output]) : nullptr;
}

// All kernels of rows of logits share this: input 0 holds the logits, input 1 the targets.
class LogitsKernel : public CudaKernel {
 protected:
  LogitsKernel(const TensorSlice& logits, const Attributes& attrs) {
    const IgnoredTarget ignored(attrs);
    const TargetWeights weights(logits, attrs);
    rows_.dtype = logits.dtype;
    rows_.rows = LeadingElements(logits, 1);
    rows_.n = SizeFromEnd(logits, 1);
    rows_.first = logits.offset.back();
    rows_.ignores = ignored.exists;
    rows_.ignored = ignored.value;
    rows_.of_target = weights.of_target;
    rows_.of_each = weights.of_each;
  }

  LogitRows Rows(const KernelArgs& args) const {
    LogitRows rows = rows_;
    rows.logits = args.inputs[0];
    rows.targets = static_cast<const int32_t*>(args.inputs[1]);
    return rows;
  }
  static const float* Floats(const KernelArgs& args, size_t input) {
    return static_cast<const float*>(args.inputs[input]);
  }

 private:
  LogitRows rows_;
};

class CrossEntropyKernel final : public LogitsKernel {
 public:
  CrossEntropyKernel(const TensorSlice& logits, const Attributes& attrs)
      : LogitsKernel(logits, attrs) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    LaunchCrossEntropy(
        {Rows(args), FloatsOrNull(args, 0), FloatsOrNull(args, 1), FloatsOrNull(args, 2)}, stream);
    return absl::OkStatus();
  }
};

class CrossEntropyGradKernel final : public LogitsKernel {
 public:
  CrossEntropyGradKernel(const TensorSlice& logits, const Attributes& attrs)
      : LogitsKernel(logits, attrs) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    LaunchCrossEntropyGrad(
        {Rows(args), Floats(args, 2), Floats(args, 3), Floats(args, 4), args.outputs[0]}, stream);
    return absl::OkStatus();
  }
};

class ExpSumPickKernel final : public LogitsKernel {
 public:
  ExpSumPickKernel(const TensorSlice& logits, const Attributes& attrs)
      : LogitsKernel(logits, attrs) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    LaunchExpSumPick({Rows(args), Floats(args, 2), FloatsOrNull(args, 0), FloatsOrNull(args, 1)},
                     stream);
    return absl::OkStatus();
  }
};

class AccuracyKernel final : public LogitsKernel {
 public:
  AccuracyKernel(const TensorSlice& logits, const Attributes& attrs)
      : LogitsKernel(logits, attrs) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    LaunchAccuracy({Rows(args), FloatsOrNull(args, 0)}, stream);
    return absl::OkStatus();
  }
};

class CrossEntropyFinishKernel final : public CudaKernel {
 public:
  CrossEntropyFinishKernel(int64_t rows, const Attributes& attrs) : rows_(rows), ignored_(attrs) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    CrossEntropyFinishWork work;
    work.rows = rows_;
    work.max = static_cast<const float*>(args.inputs[0]);
    work.sum_exp = static_cast<const float*>(args.inputs[1]);
    work.picked = static_cast<const float*>(args.inputs[2]);
    if (ignored_.exists) work.targets = static_cast<const int32_t*>(args.inputs[3]);
    work.ignored = ignored_.value;
    work.loss = static_cast<float*>(args.outputs[0]);
    LaunchCrossEntropyFinish(work, stream);
    return absl::OkStatus();
  }

 private:
  const int64_t rows_;
  const IgnoredTarget ignored_;
};

template <class LogitsKernelType>
KernelOr MakeOfLogits(const KernelSpec& spec, absl::Status status) {
  if (!status.ok()) return status;
  return std::make_unique<LogitsKernelType>(*spec.inputs[0], spec.attrs);
}

KernelOr MakeCrossEntropy(const KernelSpec& spec) {
  return MakeOfLogits<CrossEntropyKernel>(spec, CheckCrossEntropy(spec));
}
KernelOr MakeCrossEntropyGrad(const KernelSpec& spec) {
  return MakeOfLogits<CrossEntropyGradKernel>(spec, CheckCrossEntropyGrad(spec));
}
KernelOr MakeExpSumPick(const KernelSpec& spec) {
  return MakeOfLogits<ExpSumPickKernel>(spec, CheckExpSumPick(spec));
}
KernelOr MakeAccuracy(const KernelSpec& spec) {
  return MakeOfLogits<AccuracyKernel>(spec, CheckAccuracy(spec));
}
KernelOr MakeCrossEntropyFinish(const KernelSpec& spec) {
  if (absl::Status status = CheckCrossEntropyFinish(spec); !status.ok()) return status;
  return std::make_unique<CrossEntropyFinishKernel>(spec.outputs[0]->num_elements(), spec.attrs);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "softmax_cross_entropy", MakeCrossEntropy);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "softmax_cross_entropy_grad", MakeCrossEntropyGrad);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "exp_sum_pick", MakeExpSumPick);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "cross_entropy_finish", MakeCrossEntropyFinish);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "accuracy", MakeAccuracy);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
