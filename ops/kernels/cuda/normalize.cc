// reduce_variance, normalize and their gradients: factories of the kernels for CUDA.
#include "ops/kernels/cuda/normalize.h"

#include "ops/kernels/cuda/arithmetic.h"
#include "ops/kernels/cuda/axis_walk_of.h"
#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/normalize_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// The four kernels share this: x, whose statistics are inputs and outputs, and partial sums.
class StatisticsKernel : public CudaKernel {
 public:
  // `num_sums` is the number of sums per statistic.
  StatisticsKernel(const KernelSpec& spec, int num_sums) : spec_(spec), num_sums_(num_sums) {
    const TensorSlice& x = *spec.inputs[0];
    const std::vector<int64_t> axes = spec.attrs.Ints("axes");
    shape_.dtype = x.dtype;
    shape_.empty = x.num_elements() == 0;
    shape_.walk = AxisWalkOf(x.shape, axes);
    shape_.count = static_cast<float>(ReducedElements(x.global_shape, axes));
    shape_.epsilon = static_cast<float>(spec.attrs.Real("epsilon", 1e-5));
  }

  int64_t workspace_bytes() const override {
    if (num_sums_ == 0) return 0;
    return NormalizePartials(shape_, num_sums_) * static_cast<int64_t>(sizeof(float));
  }

 protected:
  NormalizeShape ShapeWith(void* workspace) const {
    NormalizeShape shape = shape_;
    shape.partials = static_cast<float*>(workspace);
    return shape;
  }
  // An absent input has a null pointer.
  Statistic In(const KernelArgs& args, size_t i) const {
    if (i >= args.inputs.size() || args.inputs[i] == nullptr) return {};
    return {spec_.inputs[i]->dtype, args.inputs[i]};
  }
  static float* Out(const KernelArgs& args, size_t i) {
    return static_cast<float*>(args.outputs[i]);
  }

 private:
  const KernelSpec spec_;
  const int num_sums_;
  NormalizeShape shape_;  // without addresses
};

class VarianceKernel final : public StatisticsKernel {
 public:
  explicit VarianceKernel(const KernelSpec& spec) : StatisticsKernel(spec, 1) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    const NormalizeShape shape = ShapeWith(workspace);
    LaunchVariance({shape, args.inputs[0], In(args, 1), Out(args, 0)}, stream);
    if (args.outputs.size() > 1 && args.outputs[1] != nullptr) {
      LaunchScale({DType::kF32, UnbiasedFactor(shape.count), args.outputs[0], args.outputs[1],
                   shape.walk.num_results()},
                  stream);
    }
    return absl::OkStatus();
  }
};

class VarianceGradKernel final : public StatisticsKernel {
 public:
  explicit VarianceGradKernel(const KernelSpec& spec) : StatisticsKernel(spec, 1) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    LaunchVarianceGrad({ShapeWith(workspace), args.inputs[0], In(args, 1), In(args, 2),
                        args.outputs[0], Out(args, 1)},
                       stream);
    return absl::OkStatus();
  }
};

class NormalizeKernel final : public StatisticsKernel {
 public:
  explicit NormalizeKernel(const KernelSpec& spec) : StatisticsKernel(spec, 0) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    LaunchNormalize({ShapeWith(nullptr), args.inputs[0], In(args, 1), In(args, 2), In(args, 3),
                     In(args, 4), args.outputs[0]},
                    stream);
    return absl::OkStatus();
  }
};

class NormalizeGradKernel final : public StatisticsKernel {
 public:
  explicit NormalizeGradKernel(const KernelSpec& spec) : StatisticsKernel(spec, 2) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    NormalizeGradWork work;
    work.shape = ShapeWith(workspace);
    work.x = args.inputs[0];
    work.mean = In(args, 1);
    work.variance = In(args, 2);
    work.dy = args.inputs[3];
    work.gamma = In(args, 4);
    work.dx = args.outputs[0];
    work.dmean = Out(args, 1);
    work.dvariance = Out(args, 2);
    work.dgamma = Out(args, 3);
    work.dbeta = Out(args, 4);
    LaunchNormalizeGrad(work, stream);
    return absl::OkStatus();
  }
};

template <class KernelType>
KernelFactory Make(absl::Status (*check)(const KernelSpec&)) {
  return [check](const KernelSpec& spec) -> KernelOr {
    if (absl::Status status = check(spec); !status.ok()) return status;
    return std::make_unique<KernelType>(spec);
  };
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "reduce_variance", Make<VarianceKernel>(CheckVariance));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "reduce_variance_grad",
                     Make<VarianceGradKernel>(CheckVarianceGrad));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "normalize", Make<NormalizeKernel>(CheckNormalize));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "normalize_grad",
                     Make<NormalizeGradKernel>(CheckNormalizeGrad));

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
