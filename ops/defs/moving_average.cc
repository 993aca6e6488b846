// moving_average: a statistic of a batch in training, and the average of what the statistic was in
// evaluation. Batch normalisation keeps its running mean and its running variance in this way.
//
// The average is a parameter that no gradient reaches. The compiler takes `sample` for the
// average's gradient (compiler/passes/differentiate.cc), so that samples of all shards and
// micro-batches are added up as gradients are. An update then moves the average towards their mean
// (compiler/passes/weight_functions.h). In plans for evaluation the compiler puts the average in
// the place of the result, so that kernels only know training.
#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef MovingAverageDef() {
  OpDef def;
  def.schema = {
      .name = "moving_average",
      .doc = "y = x in training, which updates the average; y = average in evaluation.",
      .inputs = {{.name = "x", .doc = "a statistic of the batch, any shape"},
                 {.name = "average",
                  .doc = "like x; a parameter that nothing else reads; an update makes it (1 - "
                         "momentum) * average + momentum * sample"},
                 {.name = "sample", .optional = true, .doc = "like x; default: x"}},
      .outputs = {{.name = "y", .doc = "like x"}},
      .attrs = {{"momentum", AttrKind::kReal, 0.1, "share of the new sample, from above 0 to 1"}},
      .factors = "..., ..., ... -> ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x", "average", "sample"});
    check.Real(0);
    for (int i = 1; i <= 2; ++i) check.Real(i).SameShape(i, 0);
    WEIR_RETURN_IF_ERROR(check.status());
    const double momentum = in.attrs.Real("momentum");
    if (!(momentum > 0 && momentum <= 1)) {
      return Rejected({"W0310", "", "momentum above 0 and at most 1", absl::StrCat(momentum),
                       "momentum: 0.1; an average that training leaves alone has frozen: true"});
    }
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., ..., ... -> ...", inputs, outputs).Build();
  };
  def.gradient = [](GradientBuilder& b) {
    const ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) SetGrad(b, 0, dy);
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(0);
  return def;
}

WEIR_REGISTER_OP(MovingAverageDef());

}  // namespace
}  // namespace weir::ops
