#include "ops/defs/flops.h"
#include "ops/defs/ignore_index.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef AccuracyDef() {
  OpDef def;
  def.schema = {.name = "accuracy",
                .doc =
                    "1 for each sample whose largest logit is the target's, else 0, and 0 for "
                    "ignored targets. "
                    "Not differentiable.",
                .inputs = {{.name = "logits", .doc = "[..., v]"},
                           {.name = "targets",
                            .doc = "i32[...], places of v",
                            .index = IndexedAxis{.operand = 0, .axis = -1},
                            .ignored_by = kIgnoreIndex}},
                .outputs = {{.name = "hit", .doc = "f32[...]"}},
                .attrs = {IgnoreIndexAttr("its sample is no hit")},
                .factors = "... v, ... -> ...; v is whole"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"logits", "targets"});
    check.Real(0).MinRank(0, 1).Is(1, DType::kI32).LeadingShape(1, 0, 1);
    WEIR_RETURN_IF_ERROR(CheckIgnoreIndex(in.attrs, check).status());
    return std::vector<sbp::TensorType>{sbp::TensorType{DType::kF32, in.inputs[1].dims}};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... v, ... -> ...", inputs, outputs).Whole("v").Build();
  };
  def.flops = FlopsPerInput(1);
  return def;
}

WEIR_REGISTER_OP(AccuracyDef());

}  // namespace
}  // namespace weir::ops
