#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef CastDef() {
  OpDef def;
  def.schema = {
      .name = "cast",
      .doc =
          "The elements of x in another type. To bf16 and f16 rounds to nearest even, to i32 drops "
          "the fraction, to bool is true where x is not 0; from bool gives 0 and 1.",
      .inputs = {{.name = "x", .doc = "any shape"}},
      .outputs = {{.name = "y", .doc = "like x, of type `to`"}},
      .attrs = {{"to", AttrKind::kString, std::nullopt, "f32, bf16, f16, i32 or bool"}},
      .factors = "... -> ...; linear in x (real to real)",
      .moves_elements = true};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    std::string to = in.attrs.Str("to");
    WEIR_RETURN_IF_ERROR(CheckChoice("to", to, {"f32", "bf16", "f16", "i32", "bool"}));
    return std::vector<sbp::TensorType>{sbp::TensorType{*DTypeFromName(to), in.inputs[0].dims}};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    RuleBuilder rule("... -> ...", inputs, outputs);
    if (IsReal(inputs[0].dtype) && IsReal(outputs[0].dtype)) rule.Linear({0});
    return rule.Build();
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = b.output_grad(0);
    if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
    // A gradient that already has the type of x (f32, of a parameter) is kept unchanged.
    DType wanted = b.input_type(0).dtype;
    if (b.type(dy).dtype != wanted) dy = Add1(b, "cast", {dy}, {{"to", std::string(Name(wanted))}});
    SetGrad(b, 0, dy);
    return absl::OkStatus();
  };
  def.flops = NoFlops();
  return def;
}

WEIR_REGISTER_OP(CastDef());

}  // namespace
}  // namespace weir::ops
