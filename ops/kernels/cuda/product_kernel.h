// A kernel that is one product of its operands, such as matmul and batched_matmul.
#pragma once

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/product.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Returns the operands of a plain product c = a b: two inputs and an output.
inline ProductOperands PlainOperands(const KernelArgs& args) {
  ProductOperands operands;
  operands.a = args.inputs[0];
  operands.b = args.inputs[1];
  operands.c = args.outputs[0];
  return operands;
}

class ProductKernel final : public CudaKernel {
 public:
  // `operands_of` says which input and output is which operand of the product.
  using OperandsOf = ProductOperands (*)(const KernelArgs& args);
  ProductKernel(const ProductSpec& spec, OperandsOf operands_of)
      : product_(spec), operands_of_(operands_of) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    return product_.Enqueue(operands_of_(args), workspace, stream);
  }

 private:
  Product product_;
  const OperandsOf operands_of_;
};

}  // namespace weir::kernels::WEIR_CUDA_SPACE
