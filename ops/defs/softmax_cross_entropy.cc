// softmax_cross_entropy, its gradient, and the two ops that compute it when the
// vocabulary is split: exp_sum_pick on each shard (with the global maximum), then
// cross_entropy_finish.
#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/ignore_index.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

constexpr char kLabelSmoothing[] = "label_smoothing";

// Returns f32[...]: the type of the logits without the vocabulary.
sbp::TensorType PerSample(const sbp::TensorType& logits) {
  sbp::TensorType type{DType::kF32, logits.dims};
  type.dims.pop_back();
  return type;
}

OperandSchema TargetsSchema() {
  return {.name = "targets",
          .doc = "i32[...], places of v",
          .index = IndexedAxis{.operand = 0, .axis = -1},
          .ignored_by = kIgnoreIndex};
}

// The attributes of the loss, and of the ops that compute its parts.
std::vector<AttrSchema> LossAttrs() {
  return {IgnoreIndexAttr("its sample has the loss 0 and no gradient"),
          {kLabelSmoothing, AttrKind::kReal, 0.0,
           "share of each target that is spread evenly over v, from 0 to below 1"}};
}

void CheckLogitsAndTargets(const Attributes& attrs, OperandCheck& check) {
  check.Real(0).MinRank(0, 1).Is(1, DType::kI32).LeadingShape(1, 0, 1);
  CheckIgnoreIndex(attrs, check);
  const double smoothing = attrs.Real(kLabelSmoothing, 0);
  if (!(smoothing >= 0 && smoothing < 1)) {
    check.Fail({"W0310", "", "label_smoothing from 0 to below 1", absl::StrCat(smoothing),
                "label_smoothing: 0.1"});
  }
}

OpDef SoftmaxCrossEntropyDef() {
  OpDef def;
  def.schema = {.name = "softmax_cross_entropy",
                .doc =
                    "loss = -log softmax(logits)[target] for each sample. With smoothing e, the "
                    "target counts 1 - e, and each place of v counts e / v.",
                .inputs = {{.name = "logits", .doc = "[..., v]"}, TargetsSchema()},
                .outputs = {{.name = "loss", .doc = "f32[...]"},
                            {.name = "max", .optional = true, .doc = "f32[...], largest logit"},
                            {.name = "sum_exp",
                             .optional = true,
                             .doc = "f32[...], sum of exp(logit - max)"}},
                .attrs = LossAttrs(),
                .factors = "... v, ... -> ..., ..., ...; v is whole"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"logits", "targets"});
    CheckLogitsAndTargets(in.attrs, check);
    WEIR_RETURN_IF_ERROR(check.status());
    return std::vector<sbp::TensorType>(3, PerSample(in.inputs[0]));
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... v, ... -> ..., ..., ...", inputs, outputs).Whole("v").Build();
  };
  def.gradient = [](GradientBuilder& b) -> absl::Status {
    WEIR_RETURN_IF_ERROR(ExpectNoGrad(b, "softmax_cross_entropy", 1, "max"));
    WEIR_RETURN_IF_ERROR(ExpectNoGrad(b, "softmax_cross_entropy", 2, "sum_exp"));
    ValueId dloss = OutputGrad(b, 0);
    if (dloss < 0 || !b.needs_grad(0)) return absl::OkStatus();
    SetGrad(b, 0,
            Add1(b, "softmax_cross_entropy_grad",
                 {b.input(0), b.input(1), b.output(1), b.output(2), dloss}, b.attrs()));
    return absl::OkStatus();
  };
  def.flops = FlopsPerInput(4);
  return def;
}

OpDef SoftmaxCrossEntropyGradDef() {
  OpDef def;
  def.schema = {.name = "softmax_cross_entropy_grad",
                .doc = "dlogits = (softmax(logits) - smoothed one-hot target) * dloss.",
                .inputs = {{.name = "logits", .doc = "[..., v]"},
                           TargetsSchema(),
                           {.name = "max", .doc = "f32[...]"},
                           {.name = "sum_exp", .doc = "f32[...]"},
                           {.name = "dloss", .doc = "f32[...]"}},
                .outputs = {{.name = "dlogits", .doc = "like logits"}},
                .attrs = LossAttrs(),
                .internal = true,
                .factors = "... v, ..., ..., ..., ... -> ... v; linear in dloss"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"logits", "targets", "max", "sum_exp", "dloss"});
    CheckLogitsAndTargets(in.attrs, check);
    for (int i = 2; i < 5; ++i) check.Is(i, DType::kF32).LeadingShape(i, 0, 1);
    WEIR_RETURN_IF_ERROR(check.status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... v, ..., ..., ..., ... -> ... v", inputs, outputs).Linear({4}).Build();
  };
  def.flops = FlopsPerOutput(4);
  return def;
}

OpDef ExpSumPickDef() {
  OpDef def;
  def.schema = {
      .name = "exp_sum_pick",
      .doc =
          "Sum of exp(logit - max), and the logit of the target (0 in shards that lack it); "
          "with smoothing, the mean of the logits by the smoothed target.",
      .inputs = {{.name = "logits", .doc = "[..., v]"},
                 TargetsSchema(),
                 {.name = "max", .doc = "f32[...], over the whole of v"}},
      .outputs = {{.name = "sum_exp", .doc = "f32[...]"}, {.name = "picked", .doc = "f32[...]"}},
      .attrs = LossAttrs(),
      .internal = true,
      .factors = "... v, ..., ... -> ..., ...; v is summed"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"logits", "targets", "max"});
    CheckLogitsAndTargets(in.attrs, check);
    WEIR_RETURN_IF_ERROR(check.Is(2, DType::kF32).LeadingShape(2, 0, 1).status());
    return std::vector<sbp::TensorType>(2, PerSample(in.inputs[0]));
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... v, ..., ... -> ..., ...", inputs, outputs).Build();
  };
  def.flops = FlopsPerInput(3);
  return def;
}

OpDef CrossEntropyFinishDef() {
  OpDef def;
  def.schema = {.name = "cross_entropy_finish",
                .doc =
                    "loss = log(sum_exp) + max - picked, element by element; 0 where the target "
                    "is ignored.",
                .inputs = {{.name = "max", .doc = "f32[...]"},
                           {.name = "sum_exp", .doc = "f32[...]"},
                           {.name = "picked", .doc = "f32[...]"},
                           {.name = "targets",
                            .optional = true,
                            .doc = "i32[...]; needed if targets are ignored"}},
                .outputs = {{.name = "loss", .doc = "f32[...]"}},
                .attrs = {IgnoreIndexAttr("its loss is 0")},
                .internal = true,
                .factors = "..., ..., ..., ... -> ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"max", "sum_exp", "picked", "targets"});
    for (int i = 0; i < 3; ++i) check.Is(i, DType::kF32).SameShape(i, 0);
    check.Is(3, DType::kI32).SameShape(3, 0);
    CheckIgnoreIndex(in.attrs, check);
    WEIR_RETURN_IF_ERROR(check.status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., ..., ..., ... -> ...", inputs, outputs).Build();
  };
  def.flops = FlopsPerOutput(3);
  return def;
}

WEIR_REGISTER_OP(SoftmaxCrossEntropyDef());
WEIR_REGISTER_OP(SoftmaxCrossEntropyGradDef());
WEIR_REGISTER_OP(ExpSumPickDef());
WEIR_REGISTER_OP(CrossEntropyFinishDef());

}  // namespace
}  // namespace weir::ops
