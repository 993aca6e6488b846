#include "ops/defs/flops.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

OpDef ConstantDef() {
  OpDef def;
  def.schema = {.name = "constant",
                .doc = "A tensor whose elements are all `value`.",
                .inputs = {},
                .outputs = {{.name = "y", .doc = "of type `to`"}},
                .attrs = {{"value", AttrKind::kReal, std::nullopt, "every element"},
                          {"to", AttrKind::kString, std::nullopt, "a type, \"f32[batch, hidden]\""}},
                .internal = true,
                .factors = "-> ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<TensorType>> {
    WEIR_ASSIGN_OR_RETURN(TensorType type, ParseType(in.attrs.Str("to"), in.dims));
    return std::vector<TensorType>{std::move(type)};
  };
  def.rule = [](const Attributes&, const std::vector<TensorType>&, const std::vector<TensorType>& outputs) {
    FactorRule rule;
    rule.outputs.resize(1);
    for (const TensorDim& dim : outputs[0].dims) {
      rule.outputs[0].dims.push_back({static_cast<int>(rule.factors.size())});
      rule.factors.push_back({dim.name, dim.size, dim.unit});
    }
    return rule;
  };
  def.flops = FlopsPerOutput(0);
  return def;
}

WEIR_REGISTER_OP(ConstantDef());

}  // namespace
}  // namespace weir
