// softmax over the last dimension, and its gradient.
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef SoftmaxDef() {
  OpDef def;
  def.schema = {.name = "softmax",
                .doc = "y = exp(x) / sum of exp(x) over the last dimension.",
                .inputs = {{.name = "x", .doc = "[..., n]"}},
                .outputs = {{.name = "y", .doc = "like x"}},
                .factors = "... n -> ... n; n is whole"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Real(0).MinRank(0, 1).status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... n -> ... n", inputs, outputs).Whole("n").Build();
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) SetGrad(b, 0, Add1(b, "softmax_grad", {b.output(0), dy}, {}));
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(5);
  return def;
}

OpDef SoftmaxGradDef() {
  OpDef def;
  def.schema = {
      .name = "softmax_grad",
      .doc = "dx = y * (dy - sum of y * dy over the last dimension).",
      .inputs = {{.name = "y", .doc = "result of softmax"}, {.name = "dy", .doc = "like y"}},
      .outputs = {{.name = "dx", .doc = "like y"}},
      .internal = true,
      .factors = "... n, ... n -> ... n; n is whole; linear in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"y", "dy"});
    WEIR_RETURN_IF_ERROR(check.Real(0).MinRank(0, 1).SameType(1, 0).SameShape(1, 0).status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... n, ... n -> ... n", inputs, outputs).Whole("n").Linear({1}).Build();
  };
  def.flops = FlopsPerOutput(4);
  return def;
}

WEIR_REGISTER_OP(SoftmaxDef());
WEIR_REGISTER_OP(SoftmaxGradDef());

}  // namespace
}  // namespace weir::ops
