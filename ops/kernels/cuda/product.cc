#include "ops/kernels/cuda/product.h"

#include "ops/kernels/cuda/arithmetic.h"
#include "ops/kernels/cuda/unary.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

ProductSpec SpecOf(const ProductShape& shape) {
  const auto stored = [](bool transposed) {
    return transposed ? Layout::kTransposed : Layout::kPlain;
  };
  ProductSpec spec;
  spec.m = shape.m;
  spec.n = shape.n;
  spec.k = shape.k;
  spec.batch = shape.batch;
  spec.operands = shape.operands;
  spec.result = shape.result;
  spec.a = stored(shape.a_transposed);
  spec.b = stored(shape.b_transposed);
  spec.has_bias = shape.bias.has_value();
  spec.bias = shape.bias.value_or(DType::kF32);
  spec.keeps_pre = shape.keeps_pre;
  return spec;
}

absl::Status Product::Enqueue(const ProductOperands& operands, void* workspace,
                              device::CudaStream stream) {
  ProductFinish finish;
  finish.rows = spec_.batch * spec_.m;
  finish.columns = spec_.n;
  finish.dtype = spec_.result;
  finish.bias_dtype = spec_.bias;
  finish.bias = operands.bias;
  finish.activation = spec_.activation;
  finish.pre = operands.pre;
  finish.y = operands.c;
  if (!IsPlain()) {
    LaunchProductFinish(finish, stream);
    return absl::OkStatus();
  }
  if (plan_ == nullptr) {
    ProductSpec planned = spec_;
    if (narrowed_elements() > 0) planned.result = DType::kF32;
    WEIR_ASSIGN_OR_RETURN(plan_, MakeProductPlan(planned));
  }
  if (narrowed_elements() > 0) {
    ProductOperands wide = operands;
    wide.c = static_cast<char*>(workspace) + kProductWorkspace;
    WEIR_RETURN_IF_ERROR(plan_->Enqueue(wide, workspace, stream));
    LaunchCast({DType::kF32, spec_.result, wide.c, operands.c, narrowed_elements()}, stream);
    return absl::OkStatus();
  }
  if (plan_->reach() == ProductReach::kAll) {
    const absl::Status status = plan_->Enqueue(operands, workspace, stream);
    const bool asks_much = spec_.gelu_grad || spec_.sums != SummedOperand::kNone;
    if (status.ok() || has_run_ || !asks_much) {
      has_run_ = true;
      return status;
    }
    // The library has promised what it does not do for these operands.
    ProductSpec less = spec_;
    less.gelu_grad = false;
    less.sums = SummedOperand::kNone;
    WEIR_ASSIGN_OR_RETURN(plan_, MakeProductPlan(less));
  }
  has_run_ = true;
  if (spec_.gelu_grad) {
    WEIR_RETURN_IF_ERROR(plan_->Enqueue(operands, workspace, stream));
    UnaryWork grad;
    grad.function = Unary::kGelu;
    grad.dtype = spec_.result;
    grad.x = operands.gelu_input;
    grad.dy = operands.c;
    grad.y = operands.c;
    grad.count = spec_.batch * spec_.m * spec_.n;
    LaunchUnaryGrad(grad, stream);
    return absl::OkStatus();
  }
  ProductOperands stored = operands;
  if (operands.pre != nullptr) stored.c = operands.pre;
  WEIR_RETURN_IF_ERROR(plan_->Enqueue(stored, workspace, stream));
  finish.product = stored.c;
  if (plan_->reach() == ProductReach::kBias) finish.bias = nullptr;
  const bool finished =
      finish.bias == nullptr && finish.activation == Activation::kNone && finish.pre == nullptr;
  if (!finished) LaunchProductFinish(finish, stream);
  return absl::OkStatus();
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
