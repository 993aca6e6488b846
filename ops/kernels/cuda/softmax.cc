// softmax over the last axis and its gradient: factories of the kernels for CUDA.
#include "ops/kernels/cuda/softmax.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/softmax_check.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

class SoftmaxKernel final : public CudaKernel {
 public:
  explicit SoftmaxKernel(const TensorSlice& x)
      : dtype_(x.dtype), rows_(LeadingElements(x, 1)), n_(SizeFromEnd(x, 1)) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    LaunchSoftmax({dtype_, rows_, n_, args.inputs[0], args.outputs[0]}, stream);
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  const int64_t rows_, n_;
};

class SoftmaxGradKernel final : public CudaKernel {
 public:
  explicit SoftmaxGradKernel(const TensorSlice& y)
      : dtype_(y.dtype), rows_(LeadingElements(y, 1)), n_(SizeFromEnd(y, 1)) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    LaunchSoftmaxGrad({dtype_, rows_, n_, args.inputs[0], args.inputs[1], args.outputs[0]}, stream);
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  const int64_t rows_, n_;
};

KernelOr MakeSoftmax(const KernelSpec& spec) {
  if (absl::Status status = CheckSoftmax(spec); !status.ok()) return status;
  return std::make_unique<SoftmaxKernel>(*spec.inputs[0]);
}

KernelOr MakeSoftmaxGrad(const KernelSpec& spec) {
  if (absl::Status status = CheckSoftmaxGrad(spec); !status.ok()) return status;
  return std::make_unique<SoftmaxGradKernel>(*spec.inputs[0]);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "softmax", MakeSoftmax);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "softmax_grad", MakeSoftmaxGrad);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
