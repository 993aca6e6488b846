#include "ops/kernels/cuda/silu_product.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/joined_kernels.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

class SiluProductKernel final : public CudaKernel {
 public:
  explicit SiluProductKernel(const TensorSlice& h) {
    work_.dtype = h.dtype;
    work_.count = h.num_elements();
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    SiluProductWork work = work_;
    work.x = args.inputs[0];
    work.b = args.inputs[1];
    work.h = args.outputs[0];
    work.y = args.outputs.size() > 1 ? args.outputs[1] : nullptr;
    LaunchSiluProduct(work, stream);
    return absl::OkStatus();
  }

 private:
  SiluProductWork work_;  // without addresses
};

}  // namespace

std::unique_ptr<Kernel> MakeSiluProduct(const KernelSpec& mul) {
  return std::make_unique<SiluProductKernel>(*mul.outputs[0]);
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
