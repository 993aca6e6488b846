// where selects elements by a mask. What others call masked_fill is where with `value`.
#include "ops/defs/broadcast.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"

namespace weir::ops {
namespace {

absl::Status WhereGradient(GradientBuilder& b) {
  const ValueId dy = OutputGrad(b, 0);
  if (dy < 0) return absl::OkStatus();
  if (b.needs_grad(1))
    SetRepeatedGrad(b, 1, Add1(b, "where", {b.input(0), dy}, {{"value", 0.0}}), 1);
  if (!b.needs_grad(2)) return absl::OkStatus();
  const ValueId other = Add1(b, "logical_not", {b.input(0)}, {});
  SetRepeatedGrad(b, 2, Add1(b, "where", {other, dy}, {{"value", 0.0}}), 1);
  return absl::OkStatus();
}

OpDef WhereDef() {
  OpDef def;
  def.schema = {
      .name = "where",
      .doc = "y = a where the condition is true, else b, element by element.",
      .inputs = {{.name = "condition", .doc = "bool, any shape"},
                 {.name = "a", .doc = "aligned with the condition and repeated as by add"},
                 {.name = "b", .optional = true, .doc = "likewise; absent: `value`"}},
      .outputs = {{.name = "y", .doc = "the dimensions of all inputs"}},
      .attrs = {{"value", AttrKind::kReal, 0.0, "b of all elements, if b is absent"}},
      .factors =
          "..., ..., ... -> ..., without those along which an operand repeats; linear in a "
          "and b together"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"condition", "a", "b"});
    check.Is(0, DType::kBool).Real(1).SameType(2, 1);
    return InferBroadcast(in, check, in.inputs[1].dtype);
  };
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    sbp::FactorRule rule = BroadcastRule(attrs, inputs, outputs);
    if (inputs.size() == 3) {
      rule.linear = {ToAllOutputs({1, 2}, 1)};
    } else if (attrs.Real("value", 0) == 0) {
      rule.linear = {ToAllOutputs({1}, 1)};
    }
    return rule;
  };
  def.gradient = WhereGradient;
  def.flops = FlopsPerOutput(1);
  return def;
}

WEIR_REGISTER_OP(WhereDef());

}  // namespace
}  // namespace weir::ops
