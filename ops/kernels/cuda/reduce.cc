// reduce_sum, reduce_mean, reduce_max, expand and reduce_max_grad: factories of the kernels for
// CUDA.
#include "ops/kernels/cuda/reduce.h"

#include "ops/kernels/cuda/axis_walk_of.h"
#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/reduce_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

class ReduceKernel final : public CudaKernel {
 public:
  ReduceKernel(Reduction reduction, const TensorSlice& x, const TensorSlice& y,
               const std::vector<int64_t>& axes, double factor) {
    work_.reduction = reduction;
    work_.x_dtype = x.dtype;
    work_.y_dtype = y.dtype;
    work_.factor = static_cast<float>(factor);
    work_.num_x = x.num_elements();
    work_.num_y = y.num_elements();
    work_.walk = AxisWalkOf(x.shape, axes);
  }

  int64_t workspace_bytes() const override { return ReduceWorkspace(work_); }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    ReduceWork work = work_;
    work.x = args.inputs[0];
    work.y = args.outputs[0];
    work.partials = static_cast<float*>(workspace);
    LaunchReduction(work, stream);
    return absl::OkStatus();
  }

 private:
  ReduceWork work_;  // without addresses
};

enum class Mean : uint8_t { kNo, kYes };

KernelFactory MakeReduce(Reduction reduction, Mean mean) {
  return [reduction, mean](const KernelSpec& spec) -> KernelOr {
    if (absl::Status status = CheckReduce(spec); !status.ok()) return status;
    const std::vector<int64_t> axes = spec.attrs.Ints("axes");
    const double count = static_cast<double>(ReducedElements(spec.inputs[0]->global_shape, axes));
    return std::make_unique<ReduceKernel>(reduction, *spec.inputs[0], *spec.outputs[0], axes,
                                          mean == Mean::kYes ? 1 / count : 1);
  };
}

class ExpandKernel final : public CudaKernel {
 public:
  enum class Mask : uint8_t { kNone, kMaximum };

  ExpandKernel(const TensorSlice& dx, const std::vector<int64_t>& axes, Mask mask)
      : masked_(mask == Mask::kMaximum) {
    work_.dtype = dx.dtype;
    work_.num_dx = dx.num_elements();
    work_.walk = AxisWalkOf(dx.shape, axes);
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    ExpandWork work = work_;
    if (masked_) {
      work.x = args.inputs[0];
      work.y = args.inputs[1];
    }
    work.dy = args.inputs[masked_ ? 2 : 0];
    work.dx = args.outputs[0];
    LaunchExpand(work, stream);
    return absl::OkStatus();
  }

 private:
  const bool masked_;  // reduce_max_grad: only where x equals the maximum
  ExpandWork work_;    // without addresses
};

KernelOr MakeExpand(const KernelSpec& spec) {
  if (absl::Status status = CheckExpand(spec); !status.ok()) return status;
  return std::make_unique<ExpandKernel>(*spec.outputs[0], spec.attrs.Ints("axes"),
                                        ExpandKernel::Mask::kNone);
}

KernelOr MakeReduceMaxGrad(const KernelSpec& spec) {
  if (absl::Status status = CheckReduceMaxGrad(spec); !status.ok()) return status;
  return std::make_unique<ExpandKernel>(*spec.outputs[0], spec.attrs.Ints("axes"),
                                        ExpandKernel::Mask::kMaximum);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "reduce_sum", MakeReduce(Reduction::kSum, Mean::kNo));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "reduce_mean", MakeReduce(Reduction::kSum, Mean::kYes));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "reduce_max", MakeReduce(Reduction::kMax, Mean::kNo));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "expand", MakeExpand);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "reduce_max_grad", MakeReduceMaxGrad);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
