// add, sub and mul. The second operand is repeated over the leading dimensions that it lacks.
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

absl::StatusOr<std::vector<sbp::TensorType>> InferBinary(const InferInput& in) {
  OperandCheck check(in, {"a", "b"});
  WEIR_RETURN_IF_ERROR(check.Real(0).SameType(1, 0).Suffix(1, 0).status());
  return std::vector<sbp::TensorType>{in.inputs[0]};
}

// Returns a rule with one factor per dimension of a; the last factors are those of b.
sbp::FactorRule BinaryRule(const std::vector<sbp::TensorType>& inputs,
                           const std::vector<sbp::TensorType>& outputs) {
  sbp::FactorRule rule;
  rule.inputs.resize(2);
  rule.outputs.resize(1);
  size_t rank = inputs[0].dims.size(), lacking = rank - inputs[1].dims.size();
  for (size_t d = 0; d < rank; ++d) {
    rule.factors.push_back(sbp::Factor{.size = inputs[0].dims[d].size});
    rule.inputs[0].dims.push_back({static_cast<int>(d)});
    if (d >= lacking) rule.inputs[1].dims.push_back({static_cast<int>(d)});
    rule.outputs[0].dims.push_back({static_cast<int>(d)});
  }
  TakeUnitsAndNames(inputs, outputs, &rule);
  return rule;
}

sbp::FactorRule SumRule(const Attributes&, const std::vector<sbp::TensorType>& inputs,
                        const std::vector<sbp::TensorType>& outputs) {
  sbp::FactorRule rule = BinaryRule(inputs, outputs);
  rule.linear.push_back(ToAllOutputs({0, 1}, 1));
  return rule;
}

sbp::FactorRule ProductRule(const Attributes&, const std::vector<sbp::TensorType>& inputs,
                            const std::vector<sbp::TensorType>& outputs) {
  sbp::FactorRule rule = BinaryRule(inputs, outputs);
  rule.linear.push_back(ToAllOutputs({0}, 1));
  rule.linear.push_back(ToAllOutputs({1}, 1));
  return rule;
}

// Returns the number of dimensions of a that b lacks.
size_t Lacking(GradientBuilder& b) {
  return b.input_type(0).dims.size() - b.input_type(1).dims.size();
}

// Sets the gradient of b, given the gradient that b would have without the repetition.
void SetSecondGrad(GradientBuilder& b, ValueId grad) {
  SetGrad(b, 1, SumLeading(b, grad, Lacking(b)));
}

OpDef BinaryDef(const std::string& name, const std::string& doc, const std::string& linear) {
  OpDef def;
  def.schema = {
      .name = name,
      .doc = doc,
      .inputs = {{.name = "a", .doc = "any shape"},
                 {.name = "b", .doc = "the last dimensions of a, by name and size; or a scalar"}},
      .outputs = {{.name = "y", .doc = "like a"}},
      .factors = "... n, n -> ... n; linear in " + linear};
  def.infer = InferBinary;
  def.flops = FlopsPerOutput(1);
  return def;
}

OpDef AddDef() {
  OpDef def = BinaryDef("add", "y = a + b, element by element.", "a and b together");
  def.rule = SumRule;
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy < 0) return absl::OkStatus();
    if (b.needs_grad(0)) SetGrad(b, 0, dy);
    if (b.needs_grad(1)) SetSecondGrad(b, dy);
    return absl::OkStatus();
  };
  return def;
}

OpDef SubDef() {
  OpDef def = BinaryDef("sub", "y = a - b, element by element.", "a and b together");
  def.rule = SumRule;
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy < 0) return absl::OkStatus();
    if (b.needs_grad(0)) SetGrad(b, 0, dy);
    if (b.needs_grad(1)) {
      SetGrad(b, 1, Add1(b, "scale", {SumLeading(b, dy, Lacking(b))}, {{"factor", -1.0}}));
    }
    return absl::OkStatus();
  };
  return def;
}

OpDef MulDef() {
  OpDef def = BinaryDef("mul", "y = a * b, element by element.", "a, and in b");
  def.rule = ProductRule;
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy < 0) return absl::OkStatus();
    if (b.needs_grad(0)) SetGrad(b, 0, Add1(b, "mul", {dy, b.input(1)}, {}));
    if (b.needs_grad(1)) SetSecondGrad(b, Add1(b, "mul", {dy, b.input(0)}, {}));
    return absl::OkStatus();
  };
  return def;
}

WEIR_REGISTER_OP(AddDef());
WEIR_REGISTER_OP(SubDef());
WEIR_REGISTER_OP(MulDef());

}  // namespace
}  // namespace weir::ops
