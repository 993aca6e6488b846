// constant is a tensor of one value, made where it is needed, for seeds and empty gradients.
#include "ops/defs/flops.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef ConstantDef() {
  OpDef def;
  def.schema = {
      .name = "constant",
      .doc = "A tensor whose elements are all `value`.",
      .outputs = {{.name = "y", .doc = "of type `to`"}},
      .attrs = {{"value", AttrKind::kReal, std::nullopt, "the value"},
                {"to", AttrKind::kString, std::nullopt, "a type, such as \"f32[hidden=64/1]\""}},
      .internal = true,
      .factors = "-> ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    WEIR_ASSIGN_OR_RETURN(sbp::TensorType y, ParseType(in.attrs.Str("to"), in.dims));
    return std::vector<sbp::TensorType>{y};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("-> ...", inputs, outputs).Build();
  };
  def.flops = NoFlops();
  return def;
}

WEIR_REGISTER_OP(ConstantDef());

}  // namespace
}  // namespace weir::ops
