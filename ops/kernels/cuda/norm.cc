// layer_norm, rms_norm and their gradients: factories of the kernels for CUDA.
#include "ops/kernels/cuda/norm.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/joined_kernels.h"
#include "ops/kernels/shape/norm_check.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

void* OutputOrNull(const KernelArgs& args, size_t i) {
  return i < args.outputs.size() ? args.outputs[i] : nullptr;
}

class NormKernel final : public CudaKernel {
 public:
  // `adds`: behind the other inputs stands one that is added to x, and behind the other outputs the
  // sum.
  NormKernel(Norm norm, const KernelSpec& spec, bool adds)
      : num_inputs_(spec.inputs.size()), num_outputs_(spec.outputs.size()), adds_(adds) {
    const SpecCheck operands(spec);
    work_.norm = norm;
    work_.dtype = operands.in(0).dtype;
    work_.rows = LeadingElements(operands.in(0), 1);
    work_.n = SizeFromEnd(operands.in(0), 1);
    work_.epsilon = static_cast<float>(spec.attrs.Real("epsilon", 1e-5));
    work_.gamma.dtype = operands.in(1).dtype;
    work_.beta.dtype = operands.in(2).dtype;
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    const bool layer = work_.norm == Norm::kLayer;
    NormWork work = work_;
    work.x = args.inputs[0];
    work.gamma.data = args.inputs[1];
    work.beta.data = layer && num_inputs_ > 2 ? args.inputs[2] : nullptr;
    work.y = args.outputs[0];
    work.mean = layer ? OutputOrNull(args, 1) : nullptr;
    work.rstd = OutputOrNull(args, layer ? 2 : 1);
    if (adds_) {
      work.addend = args.inputs[num_inputs_];
      work.sum = args.outputs[num_outputs_];
    }
    LaunchNorm(work, stream);
    return absl::OkStatus();
  }

 private:
  float* OutputOrNull(const KernelArgs& args, size_t i) const {
    return i < num_outputs_ ? static_cast<float*>(args.outputs[i]) : nullptr;
  }

  const size_t num_inputs_, num_outputs_;  // of the norm alone
  const bool adds_;
  NormWork work_;  // without addresses
};

KernelFactory MakeNorm(Norm norm) {
  return [norm](const KernelSpec& spec) -> KernelOr {
    const absl::Status status = norm == Norm::kLayer ? CheckLayerNorm(spec) : CheckRmsNorm(spec);
    if (!status.ok()) return status;
    return std::make_unique<NormKernel>(norm, spec, /*adds=*/false);
  };
}

class NormGradKernel final : public CudaKernel {
 public:
  // `adds`: behind the other inputs stands one that is added to dx.
  NormGradKernel(Norm norm, const KernelSpec& spec, bool adds) : adds_(adds) {
    const SpecCheck operands(spec);
    work_.norm = norm;
    work_.dtype = operands.in(0).dtype;
    work_.rows = LeadingElements(operands.in(0), 1);
    work_.n = SizeFromEnd(operands.in(0), 1);
    work_.gamma.dtype = operands.in(1).dtype;
    work_.dgamma_dtype = operands.out(1).dtype;
    work_.dbeta_dtype = operands.out(2).dtype;
  }

  int64_t workspace_bytes() const override {
    return NormGradPartials(work_.dtype, work_.rows, work_.n) * static_cast<int64_t>(sizeof(float));
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    const bool layer = work_.norm == Norm::kLayer;
    NormGradWork work = work_;
    work.x = args.inputs[0];
    work.gamma.data = args.inputs[1];
    work.mean = layer ? static_cast<const float*>(args.inputs[2]) : nullptr;
    work.rstd = static_cast<const float*>(args.inputs[layer ? 3 : 2]);
    work.dy = args.inputs[layer ? 4 : 3];
    work.addend = adds_ ? args.inputs.back() : nullptr;
    work.dx = args.outputs[0];
    work.dgamma = args.outputs[1];
    work.dbeta = OutputOrNull(args, 2);
    work.partials = static_cast<float*>(workspace);
    LaunchNormGrad(work, stream);
    return absl::OkStatus();
  }

 private:
  const bool adds_;
  NormGradWork work_;  // without addresses
};

KernelFactory MakeNormGrad(Norm norm) {
  return [norm](const KernelSpec& spec) -> KernelOr {
    const absl::Status status =
        norm == Norm::kLayer ? CheckLayerNormGrad(spec) : CheckRmsNormGrad(spec);
    if (!status.ok()) return status;
    return std::make_unique<NormGradKernel>(norm, spec, /*adds=*/false);
  };
}

}  // namespace

std::unique_ptr<Kernel> MakeNormOfSum(const KernelSpec& norm) {
  const Norm kind = norm.op == "layer_norm" ? Norm::kLayer : Norm::kRms;
  return std::make_unique<NormKernel>(kind, norm, /*adds=*/true);
}

std::unique_ptr<Kernel> MakeNormGradPlus(const KernelSpec& grad) {
  const Norm norm = grad.op == "layer_norm_grad" ? Norm::kLayer : Norm::kRms;
  return std::make_unique<NormGradKernel>(norm, grad, /*adds=*/true);
}

namespace {

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "layer_norm", MakeNorm(Norm::kLayer));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "rms_norm", MakeNorm(Norm::kRms));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "layer_norm_grad", MakeNormGrad(Norm::kLayer));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "rms_norm_grad", MakeNormGrad(Norm::kRms));

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
