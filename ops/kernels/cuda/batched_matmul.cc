// batched_matmul on a GPU.
#include "ops/kernels/cuda/product_kernel.h"
#include "ops/kernels/shape/product_shape.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> MakeBatchedMatmul(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const ProductShape shape, ReadBatchedMatmul(spec));
  return std::make_unique<ProductKernel>(SpecOf(shape), &PlainOperands);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "batched_matmul", MakeBatchedMatmul);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
