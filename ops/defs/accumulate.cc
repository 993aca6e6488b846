// accumulate sums a gradient over the acts of a span: the micro-batches of a step, or of several
// steps.
#include "ops/defs/flops.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef AccumulateDef() {
  OpDef def;
  def.schema = {.name = "accumulate",
                .doc = "acc = g in the first act of a span, acc + g in the others.",
                .inputs = {{.name = "g", .doc = "any shape"}},
                .outputs = {{.name = "acc", .doc = "f32, like g; read and written"}},
                .internal = true,
                .factors = "... -> ...; linear in g"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"g"});
    WEIR_RETURN_IF_ERROR(check.Real(0).status());
    return std::vector<sbp::TensorType>{sbp::TensorType{DType::kF32, in.inputs[0].dims}};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... -> ...", inputs, outputs).Linear({0}).Build();
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

WEIR_REGISTER_OP(AccumulateDef());

}  // namespace
}  // namespace weir::ops
