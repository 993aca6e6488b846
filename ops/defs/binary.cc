// The ops that compute each element of y from one element of a and one of b: add, sub, mul, div,
// maximum and minimum. The operands are aligned at their last dimensions, and an operand repeats
// along each dimension that it lacks or in which its size is 1.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
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

absl::StatusOr<std::vector<sbp::TensorType>> InferBinary(const InferInput& in) {
  OperandCheck check(in, {"a", "b"});
  WEIR_RETURN_IF_ERROR(check.Real(0).SameType(1, 0).Broadcast(0, 1).status());
  const sbp::TensorType &a = in.inputs[0], &b = in.inputs[1];
  sbp::TensorType y{a.dtype, {}};
  const size_t rank = std::max(a.dims.size(), b.dims.size());
  for (size_t d = 0; d < rank; ++d) {
    const sbp::TensorDim *of_a = Aligned(a, d, rank), *of_b = Aligned(b, d, rank);
    y.dims.push_back(of_a == nullptr || (of_b != nullptr && Repeats(of_a, *of_b)) ? *of_b : *of_a);
  }
  return std::vector<sbp::TensorType>{y};
}

// Returns a rule with one factor per dimension of the result. An operand that repeats along a
// dimension does not have its factor.
sbp::FactorRule BinaryRule(const std::vector<sbp::TensorType>& inputs,
                           const std::vector<sbp::TensorType>& outputs) {
  const std::vector<sbp::TensorDim>& dims = outputs[0].dims;
  sbp::FactorRule rule;
  rule.inputs.resize(2);
  rule.outputs.resize(1);
  for (size_t d = 0; d < dims.size(); ++d) {
    const int factor = static_cast<int>(d);
    rule.factors.push_back(sbp::Factor{.size = dims[d].size});
    rule.outputs[0].dims.push_back({factor});
    for (int i : {0, 1}) {
      const sbp::TensorDim* of_operand = Aligned(inputs[i], d, dims.size());
      if (of_operand == nullptr) continue;
      rule.inputs[i].dims.emplace_back();
      if (!Repeats(of_operand, dims[d])) rule.inputs[i].dims.back().push_back(factor);
    }
  }
  TakeUnitsAndNames(inputs, outputs, &rule);
  return rule;
}

// Sets the gradient of operand i to `sign` times the sum of `grad`, which has the shape of the
// result, over the dimensions along which the operand repeats.
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

enum class Linear : uint8_t { kTogether, kEach, kFirst, kNot };

// Adds the nodes that compute dy times the derivative by operand i, in the shape of the result.
using Partial = ValueId (*)(GradientBuilder& b, int i, ValueId dy);

struct Function {
  const char* name;
  const char* formula;
  Linear linear;
  double sign_of_b;  // a factor of the derivative by b, applied to the sum
  Partial partial;
};

// Returns dy where operand i is the larger (`sign` 1) or the smaller one (-1), half of dy where
// both are equal, and 0 elsewhere.
ValueId Chosen(GradientBuilder& b, int i, ValueId dy, int sign) {
  const ValueId own = b.input(i), other = b.input(1 - i);
  const ValueId lead = Add1(b, "sub", {sign > 0 ? own : other, sign > 0 ? other : own}, {});
  return Add1(b, "mul", {dy, Add1(b, "step", {lead}, {})}, {});
}

constexpr Function kFunctions[] = {
    {"add", "y = a + b", Linear::kTogether, 1,
     [](GradientBuilder&, int, ValueId dy) { return dy; }},
    {"sub", "y = a - b", Linear::kTogether, -1,
     [](GradientBuilder&, int, ValueId dy) { return dy; }},
    {"mul", "y = a * b", Linear::kEach, 1,
     [](GradientBuilder& b, int i, ValueId dy) {
       return Add1(b, "mul", {dy, b.input(1 - i)}, {});
     }},
    {"div", "y = a / b", Linear::kFirst, -1,
     [](GradientBuilder& b, int i, ValueId dy) {
       const ValueId by_b = Add1(b, "div", {dy, b.input(1)}, {});
       return i == 0 ? by_b : Add1(b, "mul", {by_b, b.output(0)}, {});
     }},
    {"maximum", "y = the larger of a and b", Linear::kNot, 1,
     [](GradientBuilder& b, int i, ValueId dy) { return Chosen(b, i, dy, 1); }},
    {"minimum", "y = the smaller of a and b", Linear::kNot, 1,
     [](GradientBuilder& b, int i, ValueId dy) { return Chosen(b, i, dy, -1); }},
};

const char* LinearText(Linear linear) {
  switch (linear) {
    case Linear::kTogether: return "; linear in a and b together";
    case Linear::kEach: return "; linear in a, and in b";
    case Linear::kFirst: return "; linear in a";
    case Linear::kNot: break;
  }
  return "";
}

std::vector<sbp::LinearGroup> GroupsOf(Linear linear) {
  switch (linear) {
    case Linear::kTogether: return {ToAllOutputs({0, 1}, 1)};
    case Linear::kEach: return {ToAllOutputs({0}, 1), ToAllOutputs({1}, 1)};
    case Linear::kFirst: return {ToAllOutputs({0}, 1)};
    case Linear::kNot: break;
  }
  return {};
}

OpDef BinaryDef(const Function& function) {
  OpDef def;
  def.schema = {
      .name = function.name,
      .doc = absl::StrCat(function.formula, ", element by element."),
      .inputs = {{.name = "a", .doc = "any shape"},
                 {.name = "b",
                  .doc = "aligned with a at the last dimensions: equal names and sizes, or a size "
                         "of 1 or a missing dimension, along which that operand repeats"}},
      .outputs = {{.name = "y", .doc = "the dimensions of both"}},
      .factors = absl::StrCat("..., ... -> ..., without those along which an operand repeats",
                              LinearText(function.linear))};
  def.infer = InferBinary;
  def.rule = [linear = function.linear](const Attributes&, const auto& inputs,
                                        const auto& outputs) {
    sbp::FactorRule rule = BinaryRule(inputs, outputs);
    rule.linear = GroupsOf(linear);
    return rule;
  };
  def.gradient = [&function](GradientBuilder& b) {
    const ValueId dy = OutputGrad(b, 0);
    if (dy < 0) return absl::OkStatus();
    for (int i : {0, 1}) {
      if (!b.needs_grad(i)) continue;
      SetRepeatedGrad(b, i, function.partial(b, i, dy), i == 0 ? 1 : function.sign_of_b);
    }
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Function& function : kFunctions) OpRegistry::Register(BinaryDef(function));
  return true;
}();

}  // namespace
}  // namespace weir::ops
