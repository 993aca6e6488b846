// matmul (with bias and activation) and its weight gradient on a GPU.
#include <optional>
#include <string>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/product.h"
#include "ops/kernels/shape/spec_check.h"

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
  SpecCheck check(spec);
  check.Inputs(2, 3)
      .Outputs(1, 2)
      .Real(check.in(0), "x")
      .MinRank(check.in(0), 1, "x")
      .MinRank(check.out(0), 1, "y");
  check.SameType(check.in(0), check.in(1), "x and w")
      .SameType(check.in(0), check.out(0), "x and y");
  const bool transposed = spec.attrs.Bool("transpose_w");
  ProductSpec product;
  product.m = LeadingElements(check.in(0), 1);
  product.k = SizeFromEnd(check.in(0), 1);
  product.n = SizeFromEnd(check.out(0), 1);
  product.operands = product.result = check.in(0).dtype;
  product.b = transposed ? Layout::kTransposed : Layout::kPlain;
  check.Expect(
      check.in(1).shape == (transposed ? Shape{product.n, product.k} : Shape{product.k, product.n}),
      transposed ? "w[n, k]" : "w[k, n]");
  check.Expect(LeadingShape(check.in(0), 1) == LeadingShape(check.out(0), 1),
               "y with the leading axes of x");
  if (check.HasIn(2)) {
    check.Real(check.in(2), "bias").Expect(check.in(2).shape == Shape{product.n}, "bias[n]");
    product.has_bias = true;
    product.bias = check.in(2).dtype;
  }
  if (check.HasOut(1)) {
    check.SameType(check.out(0), check.out(1), "y and pre")
        .SameShape(check.out(0), check.out(1), "y and pre");
    product.keeps_pre = true;
  }
  const std::optional<Activation> activation =
      ActivationFromName(spec.attrs.Str("activation", "none"));
  check.Expect(activation.has_value(),
               "attribute activation to be none, relu, gelu, gelu_exact or silu");
  if (!check.ok()) return check.status();
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
  SpecCheck check(spec);
  check.Inputs(2, 2)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameType(check.in(0), check.in(1), "x and dy");
  check.Real(check.out(0), "dw").MinRank(check.in(0), 1, "x").MinRank(check.in(1), 1, "dy");
  check.Expect(LeadingShape(check.in(0), 1) == LeadingShape(check.in(1), 1),
               "dy with the leading axes of x");
  const int left = spec.attrs.Bool("transpose_w") ? 1 : 0;
  ProductSpec product;
  product.m = SizeFromEnd(check.in(left), 1);
  product.n = SizeFromEnd(check.in(1 - left), 1);
  product.k = LeadingElements(check.in(0), 1);
  product.operands = check.in(0).dtype;
  product.result = check.out(0).dtype;
  product.a = Layout::kTransposed;
  check.Expect(check.out(0).shape == Shape{product.m, product.n},
               left == 0 ? "dw[k, n]" : "dw[n, k]");
  if (!check.ok()) return check.status();
  return std::make_unique<MatmulGradWeightKernel>(product, left);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "matmul", MakeMatmul);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "matmul_grad_w", MakeMatmulGradWeight);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
