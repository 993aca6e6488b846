// matmul (with bias and activation) and its weight gradient on a GPU.
#include <algorithm>
#include <optional>
#include <string>

#include "ops/kernels/cuda/axis_walk_of.h"
#include "ops/kernels/cuda/joined_kernels.h"
#include "ops/kernels/cuda/product_kernel.h"
#include "ops/kernels/cuda/reduce.h"
#include "ops/kernels/shape/product_shape.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// x w, with a bias and with the value before the activation if the call has them.
ProductOperands MatmulOperands(const KernelArgs& args) {
  ProductOperands operands = PlainOperands(args);
  operands.bias = args.inputs.size() > 2 ? args.inputs[2] : nullptr;
  operands.pre = args.outputs.size() > 1 ? args.outputs[1] : nullptr;
  return operands;
}

// x w + bias + addend.
ProductOperands MatmulPlusOperands(const KernelArgs& args) {
  ProductOperands operands = PlainOperands(args);
  operands.bias = args.inputs[2];
  operands.addend = args.inputs[3];
  return operands;
}

ProductOperands BeforeActivationOperands(const KernelArgs& args) {
  ProductOperands operands = PlainOperands(args);
  operands.bias = args.inputs.size() > 2 ? args.inputs[2] : nullptr;
  return operands;
}

// The gradient of GELU at args.inputs[2], of dy = x w.
ProductOperands GeluGradOperands(const KernelArgs& args) {
  ProductOperands operands = PlainOperands(args);
  operands.gelu_input = args.inputs[2];
  return operands;
}

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
  return std::make_unique<ProductKernel>(product, &MatmulOperands);
}

// Computes dw = x^T dy, or dy^T x where the weight is stored transposed. If it accumulates, dw is
// added to the result of the earlier acts of the span. It may compute the sums of dy over all rows,
// too.
class MatmulGradWeightKernel final : public CudaKernel {
 public:
  MatmulGradWeightKernel(const ProductSpec& spec, int left, bool accumulates,
                         const std::optional<ReduceWork>& sums)
      : product_(spec), left_(left), accumulates_(accumulates), sums_(sums) {}

  int64_t workspace_bytes() const override {
    return std::max(product_.workspace_bytes(), sums_.has_value() ? ReduceWorkspace(*sums_) : 0);
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    ProductOperands operands;
    operands.a = args.inputs[left_];
    operands.b = args.inputs[1 - left_];
    operands.c = args.outputs[0];
    if (accumulates_ && args.span_act > 0) operands.addend = operands.c;
    if (sums_.has_value()) operands.sums = static_cast<float*>(args.outputs[1]);
    WEIR_RETURN_IF_ERROR(product_.Enqueue(operands, workspace, stream));
    if (!sums_.has_value() || product_.makes_sums()) return absl::OkStatus();
    ReduceWork sums = *sums_;
    sums.x = args.inputs[1];
    sums.y = args.outputs[1];
    sums.partials = static_cast<float*>(workspace);
    LaunchReduction(sums, stream);
    return absl::OkStatus();
  }

 private:
  Product product_;
  const int left_;  // which input is transposed
  const bool accumulates_;
  const std::optional<ReduceWork> sums_;  // of dy, without addresses
};

KernelOr MakeMatmulGradWeight(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const ProductShape shape, ReadMatmulGradWeight(spec));
  return std::make_unique<MatmulGradWeightKernel>(SpecOf(shape), shape.left,
                                                  /*accumulates=*/false, std::nullopt);
}

ReduceWork SumsOf(const KernelSpec& reduce_sum) {
  ReduceWork work;
  work.reduction = Reduction::kSum;
  work.x_dtype = reduce_sum.inputs[0]->dtype;
  work.y_dtype = reduce_sum.outputs[0]->dtype;
  work.num_x = reduce_sum.inputs[0]->num_elements();
  work.num_y = reduce_sum.outputs[0]->num_elements();
  work.walk = AxisWalkOf(reduce_sum.inputs[0]->shape, reduce_sum.attrs.Ints("axes"));
  return work;
}

}  // namespace

// The specs have been read before, so that reading them again cannot fail.
std::unique_ptr<Kernel> MakeMatmulPlus(const KernelSpec& matmul) {
  return std::make_unique<ProductKernel>(SpecOf(ReadMatmul(matmul).value()), &MatmulPlusOperands);
}

std::unique_ptr<Kernel> MakeMatmulBeforeActivation(const KernelSpec& matmul) {
  ProductSpec product = SpecOf(ReadMatmul(matmul).value());
  product.keeps_pre = false;
  return std::make_unique<ProductKernel>(product, &BeforeActivationOperands);
}

std::unique_ptr<Kernel> MakeMatmulGeluGrad(const KernelSpec& matmul) {
  ProductSpec product = SpecOf(ReadMatmul(matmul).value());
  product.gelu_grad = true;
  return std::make_unique<ProductKernel>(product, &GeluGradOperands);
}

std::unique_ptr<Kernel> MakeMatmulGradWeightWith(const KernelSpec& grad, bool accumulates,
                                                 const KernelSpec* bias_grad) {
  const ProductShape shape = ReadMatmulGradWeight(grad).value();
  ProductSpec product = SpecOf(shape);
  std::optional<ReduceWork> sums;
  if (bias_grad != nullptr) {
    // dy is input 1.
    product.sums = shape.left == 1 ? SummedOperand::kA : SummedOperand::kB;
    sums = SumsOf(*bias_grad);
  }
  return std::make_unique<MatmulGradWeightKernel>(product, shape.left, accumulates, sums);
}

namespace {

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "matmul", MakeMatmul);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "matmul_grad_w", MakeMatmulGradWeight);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
