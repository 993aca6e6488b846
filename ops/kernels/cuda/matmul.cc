// matmul (with bias and activation) and its weight gradient on a GPU.
#include <optional>
#include <string>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/product.h"
#include "ops/kernels/shape/product_shape.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

class MatmulKernel final : public CudaKernel {
 public:
  explicit MatmulKernel(const ProductSpec& spec) : product_(spec) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    ProductOperands operands;
    operands.a = args.inputs[0];
    operands.b = args.inputs[1];
    operands.bias = args.inputs.size() > 2 ? args.inputs[2] : nullptr;
    operands.c = args.outputs[0];
    operands.pre = args.outputs.size() > 1 ? args.outputs[1] : nullptr;
    return product_.Enqueue(operands, workspace, stream);
  }

 private:
  Product product_;
};

std::optional<Activation> ActivationFromName(const std::string& name) {
  if (name == "none") return Activation::kNone;
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_exact") return Activation::kGeluExact;
  if (name == "silu") return Activation::kSilu;
  return std::nullopt;
}

KernelOr MakeMatmul(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const ProductShape shape, ReadMatmul(spec));
  const std::optional<Activation> activation =
      ActivationFromName(spec.attrs.Str("activation", "none"));
  SpecCheck check(spec);
  check.Expect(activation.has_value(),
               "attribute activation to be none, relu, gelu, gelu_exact or silu");
  if (!check.ok()) return check.status();
  ProductSpec product = SpecOf(shape);
  product.activation = *activation;
  return std::make_unique<MatmulKernel>(product);
}

// Computes dw = x^T dy, or dy^T x where the weight is stored transposed.
class MatmulGradWeightKernel final : public CudaKernel {
 public:
  MatmulGradWeightKernel(const ProductSpec& spec, int left) : product_(spec), left_(left) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    ProductOperands operands;
    operands.a = args.inputs[left_];
    operands.b = args.inputs[1 - left_];
    operands.c = args.outputs[0];
    return product_.Enqueue(operands, workspace, stream);
  }

 private:
  Product product_;
  const int left_;  // which input is transposed
};

KernelOr MakeMatmulGradWeight(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const ProductShape shape, ReadMatmulGradWeight(spec));
  return std::make_unique<MatmulGradWeightKernel>(SpecOf(shape), shape.left);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "matmul", MakeMatmul);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "matmul_grad_w", MakeMatmulGradWeight);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
