#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

OpDef GeluDef() {
  OpDef def;
  def.schema = {.name = "gelu",
                .doc = "y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), element by element.",
                .inputs = {{.name = "x", .doc = "any shape"}},
                .outputs = {{.name = "y", .doc = "like x"}},
                .factors = "... -> ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<TensorType>> {
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Real(0).status());
    return std::vector<TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... -> ...", inputs, outputs).Build();
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) SetGrad(b, 0, Add1(b, "gelu_grad", {b.input(0), dy}, {}));
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(10);
  return def;
}

OpDef GeluGradDef() {
  OpDef def;
  def.schema = {.name = "gelu_grad",
                .doc = "dx = dy times the derivative of gelu at x.",
                .inputs = {{.name = "x", .doc = "input of gelu"}, {.name = "dy", .doc = "like x"}},
                .outputs = {{.name = "dx", .doc = "like x"}},
                .internal = true,
                .factors = "..., ... -> ...; linear in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<TensorType>> {
    OperandCheck check(in, {"x", "dy"});
    WEIR_RETURN_IF_ERROR(check.Real(0).SameType(1, 0).SameShape(1, 0).status());
    return std::vector<TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., ... -> ...", inputs, outputs).Linear({1}).Build();
  };
  def.flops = FlopsPerOutput(18);
  return def;
}

WEIR_REGISTER_OP(GeluDef());
WEIR_REGISTER_OP(GeluGradDef());

}  // namespace
}  // namespace weir
