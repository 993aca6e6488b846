#include "ops/defs/smooth_activation.h"

#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {

OpDef SmoothActivationDef(const std::string& name, const std::string& doc, double flops) {
  OpDef def;
  def.schema = {.name = name,
                .doc = doc,
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
  def.gradient = [grad_op = absl::StrCat(name, "_grad")](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) SetGrad(b, 0, Add1(b, grad_op, {b.input(0), dy}, {}));
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(flops);
  return def;
}

OpDef SmoothActivationGradDef(const std::string& name, double flops) {
  OpDef def;
  def.schema = {.name = absl::StrCat(name, "_grad"),
                .doc = absl::StrCat("dx = dy times the derivative of ", name, " at x."),
                .inputs = {{.name = "x", .doc = absl::StrCat("input of ", name)},
                           {.name = "dy", .doc = "like x"}},
                .outputs = {{.name = "dx", .doc = "like x"}},
                .internal = true,
                .factors = "..., ... -> ...; linear in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x", "dy"});
    WEIR_RETURN_IF_ERROR(check.Real(0).SameType(1, 0).SameShape(1, 0).status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., ... -> ...", inputs, outputs).Linear({1}).Build();
  };
  def.flops = FlopsPerOutput(flops);
  return def;
}

}  // namespace weir::ops
