// step_mean joins what the micro-batches of a step know of their data, before any of them computes
// with the result: the count of all targets that a loss counts, for example. The compiler computes
// the mean ahead (compiler/passes/compute_ahead.cc), so that plans do not have this op where a step
// has several micro-batches. Of one micro-batch it is the identity.
#include "ops/defs/flops.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef StepMeanDef() {
  OpDef def;
  def.schema = {.name = "step_mean",
                .doc = "The mean of x over the micro-batches of a step; x depends on data alone.",
                .inputs = {{.name = "x", .doc = "f32 scalar, computed from inputs of main"}},
                .outputs = {{.name = "y", .doc = "f32 scalar, one value for the whole step"}},
                .factors = "-> ; linear in x"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Is(0, DType::kF32).Rank(0, 0).status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder(" -> ", inputs, outputs).Linear({0}).Build();
  };
  def.flops = NoFlops();
  return def;
}

WEIR_REGISTER_OP(StepMeanDef());

}  // namespace
}  // namespace weir::ops
