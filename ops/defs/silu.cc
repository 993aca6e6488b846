#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

OpDef SiluDef() {
  OpDef def;
  def.schema = {.name = "silu",
                .doc = "y = x / (1 + exp(-x)), element by element.",
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
    if (dy >= 0 && b.needs_grad(0)) SetGrad(b, 0, Add1(b, "silu_grad", {b.input(0), dy}, {}));
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(5);
  return def;
}

OpDef SiluGradDef() {
  OpDef def;
  def.schema = {.name = "silu_grad",
                .doc = "dx = dy times the derivative of silu at x.",
                .inputs = {{.name = "x", .doc = "input of silu"}, {.name = "dy", .doc = "like x"}},
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
  def.flops = FlopsPerOutput(8);
  return def;
}

WEIR_REGISTER_OP(SiluDef());
WEIR_REGISTER_OP(SiluGradDef());

}  // namespace
}  // namespace weir
