// batched_matmul on a GPU.
#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/product.h"
#include "ops/kernels/shape/product_shape.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

class BatchedMatmulKernel final : public CudaKernel {
 public:
  explicit BatchedMatmulKernel(const ProductSpec& spec) : product_(spec) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    ProductOperands operands;
    operands.a = args.inputs[0];
    operands.b = args.inputs[1];
    operands.c = args.outputs[0];
    return product_.Enqueue(operands, workspace, stream);
  }

 private:
  Product product_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeBatchedMatmul(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const ProductShape shape, ReadBatchedMatmul(spec));
  return std::make_unique<BatchedMatmulKernel>(SpecOf(shape));
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "batched_matmul", MakeBatchedMatmul);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
