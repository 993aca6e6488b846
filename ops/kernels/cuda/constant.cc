#include "ops/kernels/cuda/constant.h"

#include "ops/kernels/cuda/cuda_kernel.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

class ConstantKernel final : public CudaKernel {
 public:
  explicit ConstantKernel(const ConstantWork& work) : work_(work) {}

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    ConstantWork work = work_;
    work.y = args.outputs[0];
    LaunchConstant(work, stream);
    return absl::OkStatus();
  }

  const ConstantWork work_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeConstant(const KernelSpec& spec) {
  if (spec.outputs.size() != 1 || !spec.outputs[0])
    return absl::InvalidArgumentError("constant: one output");
  const TensorSlice& y = *spec.outputs[0];
  ConstantWork work;
  work.dtype = y.dtype;
  work.value = static_cast<float>(spec.attrs.Real("value"));
  work.count = y.num_elements();
  return std::make_unique<ConstantKernel>(work);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "constant", MakeConstant);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
