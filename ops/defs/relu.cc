// relu: the simplest op; copy this file to add one (docs/how_to/add_an_op.md).
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef ReluDef() {
  OpDef def;
  def.schema = {.name = "relu",
                .doc = "y = max(x, 0), element by element.",
                .inputs = {{.name = "x", .doc = "any shape"}},
                .outputs = {{.name = "y", .doc = "like x"}},
                .factors = "... -> ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Real(0).status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... -> ...", inputs, outputs).Build();
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) SetGrad(b, 0, Add1(b, "relu_grad", {b.output(0), dy}, {}));
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

OpDef ReluGradDef() {
  OpDef def;
  def.schema = {.name = "relu_grad",
                .doc = "dx = dy where y > 0, else 0.",
                .inputs = {{.name = "y", .doc = "result of relu"}, {.name = "dy", .doc = "like y"}},
                .outputs = {{.name = "dx", .doc = "like y"}},
                .internal = true,
                .factors = "..., ... -> ...; linear in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"y", "dy"});
    WEIR_RETURN_IF_ERROR(check.Real(0).SameType(1, 0).SameShape(1, 0).status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., ... -> ...", inputs, outputs).Linear({1}).Build();
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

WEIR_REGISTER_OP(ReluDef());
WEIR_REGISTER_OP(ReluGradDef());

}  // namespace
}  // namespace weir::ops
