#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef ScaleDef() {
  OpDef def;
  def.schema = {.name = "scale",
                .doc = "y = factor * x, for a constant factor.",
                .inputs = {{.name = "x", .doc = "any shape"}},
                .outputs = {{.name = "y", .doc = "like x"}},
                .attrs = {{"factor", AttrKind::kReal, std::nullopt, "the constant"}},
                .factors = "... -> ...; linear in x"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Real(0).status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... -> ...", inputs, outputs).Linear({0}).Build();
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0))
      SetGrad(b, 0, Add1(b, "scale", {dy}, {{"factor", b.attrs().Real("factor")}}));
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

WEIR_REGISTER_OP(ScaleDef());

}  // namespace
}  // namespace weir::ops
