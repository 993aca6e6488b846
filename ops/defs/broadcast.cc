#include "ops/defs/broadcast.h"

#include <algorithm>

#include "ops/defs/gradient_steps.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

// Returns the dimension of `operand` that is aligned with dimension d of a result of rank `rank`,
// or null if the operand lacks the dimension.
const sbp::TensorDim* Aligned(const sbp::TensorType& operand, size_t d, size_t rank) {
  const size_t lacking = rank - operand.dims.size();
  return d < lacking ? nullptr : &operand.dims[d - lacking];
}

// Returns whether an operand repeats along a dimension of the result.
bool Repeats(const sbp::TensorDim* of_operand, const sbp::TensorDim& of_result) {
  return of_operand == nullptr || (of_operand->size == 1 && of_result.size != 1);
}

// Returns the dimensions of the result. Precondition: the operands fit.
std::vector<sbp::TensorDim> BroadcastDims(const std::vector<sbp::TensorType>& operands) {
  size_t rank = 0;
  for (const sbp::TensorType& operand : operands) rank = std::max(rank, operand.dims.size());
  std::vector<sbp::TensorDim> dims;
  for (size_t d = 0; d < rank; ++d) {
    const sbp::TensorDim* chosen = nullptr;  // the first that is not of size 1, else the first
    for (const sbp::TensorType& operand : operands) {
      const sbp::TensorDim* dim = Aligned(operand, d, rank);
      if (chosen == nullptr || (dim != nullptr && Repeats(chosen, *dim))) chosen = dim;
    }
    dims.push_back(*chosen);
  }
  return dims;
}

}  // namespace

absl::StatusOr<std::vector<sbp::TensorType>> InferBroadcast(const InferInput& in,
                                                            OperandCheck& check, DType dtype) {
  const int count = static_cast<int>(in.inputs.size());
  for (int i = 0; i < count; ++i) {
    for (int j = i + 1; j < count; ++j) check.Broadcast(i, j);
  }
  WEIR_RETURN_IF_ERROR(check.status());
  return std::vector<sbp::TensorType>{{dtype, BroadcastDims(in.inputs)}};
}

sbp::FactorRule BroadcastRule(const Attributes&, const std::vector<sbp::TensorType>& inputs,
                              const std::vector<sbp::TensorType>& outputs) {
  const std::vector<sbp::TensorDim>& dims = outputs[0].dims;
  sbp::FactorRule rule;
  rule.inputs.resize(inputs.size());
  rule.outputs.resize(1);
  for (size_t d = 0; d < dims.size(); ++d) {
    const int factor = static_cast<int>(d);
    rule.factors.push_back(sbp::Factor{.size = dims[d].size});
    rule.outputs[0].dims.push_back({factor});
    for (size_t i = 0; i < inputs.size(); ++i) {
      const sbp::TensorDim* of_operand = Aligned(inputs[i], d, dims.size());
      if (of_operand == nullptr) continue;
      rule.inputs[i].dims.emplace_back();
      if (!Repeats(of_operand, dims[d])) rule.inputs[i].dims.back().push_back(factor);
    }
  }
  TakeUnitsAndNames(inputs, outputs, &rule);
  return rule;
}

void SetRepeatedGrad(GradientBuilder& b, int i, ValueId grad, double sign) {
  const std::vector<sbp::TensorDim> dims = b.type(grad).dims;
  std::vector<int64_t> axes;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (Repeats(Aligned(b.input_type(i), d, dims.size()), dims[d]))
      axes.push_back(static_cast<int64_t>(d));
  }
  const ValueId sum = SumOver(b, grad, axes);
  SetGrad(b, i, sign == 1 ? sum : Add1(b, "scale", {sum}, {{"factor", sign}}));
}

}  // namespace weir::ops
