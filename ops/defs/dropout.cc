// dropout. The fate of an element depends on (key, micro-batch, global index) only, so the gradient
// of dropout is dropout again, with the key of the forward op.
#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef DropoutDef() {
  OpDef def;
  def.schema = {
      .name = "dropout",
      .doc = "Keeps an element with probability 1 - rate, scaled by 1 / (1 - rate); else 0.",
      .inputs = {{.name = "x", .doc = "any shape"}},
      .outputs = {{.name = "y", .doc = "like x"}},
      .attrs = {{"rate", AttrKind::kReal, std::nullopt, "probability of dropping, in [0, 1)"}},
      .factors = "... -> ...; linear in x"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Real(0).status());
    double rate = in.attrs.Real("rate");
    if (!(rate >= 0 && rate < 1)) {
      return Rejected({"W0310", "", "rate in [0, 1)", absl::StrCat(rate),
                       rate > 1 && rate <= 100 ? absl::StrCat("rate: ", rate / 100) : "rate: 0.1"});
    }
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... -> ...", inputs, outputs).Linear({0}).Build();
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0))
      SetGrad(b, 0, Add1(b, "dropout", {dy}, {{"rate", b.attrs().Real("rate")}}));
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

WEIR_REGISTER_OP(DropoutDef());

}  // namespace
}  // namespace weir::ops
