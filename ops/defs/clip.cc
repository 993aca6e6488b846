// Clips gradients by their global norm: sum_squares of shards, then clip_scale.
#include "absl/strings/str_cat.h"
#include "ops/defs/axis_rule.h"
#include "ops/defs/flops.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/update_rate_attrs.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

// The squares of one tensor add up over any split of the tensor. With several tensors, a split of
// one tensor would count the copies of the others once per device, so this rule splits nothing. A
// caller that knows that all tensors are split alike may add the local totals.
sbp::FactorRule SumSquaresRule(const Attributes&, const std::vector<sbp::TensorType>& inputs,
                               const std::vector<sbp::TensorType>& outputs) {
  sbp::FactorRule rule = WholeRule(inputs, outputs);
  if (inputs.size() == 1) {
    for (sbp::Factor& factor : rule.factors) factor.whole = false;
  }
  return rule;
}

OpDef SumSquaresDef() {
  OpDef def;
  def.schema = {
      .name = "sum_squares",
      .doc = "The sum of the squares of all elements of all inputs.",
      .inputs = {{.name = "x", .variadic = true, .doc = "any shapes"}},
      .outputs = {{.name = "total", .doc = "f32 scalar"}},
      .internal = true,
      .factors = "... -> ; of one input every dimension is summed, of several all are whole"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x"});
    for (int i = 0; i < static_cast<int>(in.inputs.size()); ++i) check.Real(i);
    WEIR_RETURN_IF_ERROR(check.status());
    return std::vector<sbp::TensorType>{sbp::TensorType{DType::kF32, {}}};
  };
  def.rule = SumSquaresRule;
  def.flops = [](const Attributes&, const auto& inputs, const auto&) {
    double count = 0;
    for (const sbp::TensorType& type : inputs)
      count += 2.0 * static_cast<double>(type.num_elements());
    return count;
  };
  return def;
}

std::vector<AttrSchema> ClipAttrs() {
  std::vector<AttrSchema> attrs = {
      {"clip_norm", AttrKind::kReal, std::nullopt, "largest norm; 0: no clipping"},
      {"loss_scale", AttrKind::kReal, 1.0, "factor of the gradients, unless an operand gives it"},
      {"first_scale", AttrKind::kReal, 1.0, "factor of the gradients of the first update"},
      {"on_nonfinite", AttrKind::kString, std::string("stop"),
       "a norm that is not finite makes scale -1, no update: stop (then and ever after), skip "
       "(then) or continue (never); with the operand loss see there"}};
  AddUpdateRate(&attrs);
  return attrs;
}

OpDef ClipScaleDef() {
  OpDef def;
  def.schema = {
      .name = "clip_scale",
      .doc =
          "norm = sqrt(total); scale = min(1, clip_norm / (norm + 1e-6)), or 1 if clip_norm is 0. "
          "Gradients of the "
          "first update count first_scale times: so does their norm, and scale makes them so. Of a "
          "norm that is not "
          "finite see on_nonfinite. Gradients are loss_scale times what they should be: norm is "
          "without the factor, and scale takes it off.",
      .inputs = {{.name = "total", .doc = "f32 scalar"},
                 {.name = "loss_scale", .optional = true, .doc = "f32 scalar"},
                 {.name = "loss",
                  .optional = true,
                  .doc =
                      "f32 scalar, the loss without a factor, if loss_scale adapts. Then a norm "
                      "that is not finite makes scale -1 whatever on_nonfinite says, and -2 if "
                      "the loss is not finite either. With stop, scale is -2 then and ever after "
                      "a loss that is not finite, or such a norm while loss_scale is below "
                      "2^-20"}},
      .outputs = {{.name = "scale", .doc = "f32 scalar"}, {.name = "norm", .doc = "f32 scalar"}},
      .attrs = ClipAttrs(),
      .internal = true,
      .factors = " -> , "};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"total", "loss_scale", "loss"});
    for (int i = 0; i < static_cast<int>(in.inputs.size()); ++i)
      check.Is(i, DType::kF32).Rank(i, 0);
    if (!(in.attrs.Real("clip_norm") >= 0)) {
      check.Fail({"W0310", "", "clip_norm of at least 0", absl::StrCat(in.attrs.Real("clip_norm")),
                  "clip_norm: 1"});
    }
    if (!(in.attrs.Real("loss_scale", 1) > 0)) {
      check.Fail({"W0310", "", "loss_scale above 0", absl::StrCat(in.attrs.Real("loss_scale", 1)),
                  "loss_scale: 1"});
    }
    WEIR_RETURN_IF_ERROR(check.status());
    WEIR_RETURN_IF_ERROR(CheckUpdateRate(in));
    WEIR_RETURN_IF_ERROR(CheckChoice("on_nonfinite", in.attrs.Str("on_nonfinite", "stop"),
                                     {"stop", "skip", "continue"}));
    return std::vector<sbp::TensorType>(2, sbp::TensorType{DType::kF32, {}});
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    const std::string commas(inputs.size() - 1, ',');
    return RuleBuilder(absl::StrCat(commas, " -> , "), inputs, outputs).Build();
  };
  def.flops = FlopsPerOutput(3);
  return def;
}

OpDef AdaptLossScaleDef() {
  OpDef def;
  def.schema = {
      .name = "adapt_loss_scale",
      .doc =
          "A scale of -1, for gradients that are not finite, multiplies the factor by "
          "backoff, down to 2^-24; growth_interval others in a row multiply it by growth. "
          "A scale of -2 changes neither output.",
      .inputs = {{.name = "scale", .doc = "f32 scalar, of clip_scale"}},
      .outputs = {{.name = "factor", .doc = "f32 scalar; read and written"},
                  {.name = "finite_steps", .doc = "f32 scalar, a whole number; state"}},
      .attrs = {{"growth", AttrKind::kReal, 2.0, "1 or more"},
                {"backoff", AttrKind::kReal, 0.5, "above 0 and below 1"},
                {"growth_interval", AttrKind::kInt, int64_t{2000}, "1 or more"}},
      .internal = true,
      .factors = " -> , "};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"scale"});
    check.Is(0, DType::kF32).Rank(0, 0);
    const double growth = in.attrs.Real("growth", 2), backoff = in.attrs.Real("backoff", 0.5);
    const int64_t interval = in.attrs.Int("growth_interval", 2000);
    if (!(growth >= 1))
      check.Fail({"W0310", "", "growth of at least 1", absl::StrCat(growth), "growth: 2"});
    if (!(backoff > 0 && backoff < 1)) {
      check.Fail(
          {"W0310", "", "backoff above 0 and below 1", absl::StrCat(backoff), "backoff: 0.5"});
    }
    if (interval < 1) {
      check.Fail({"W0310", "", "growth_interval of at least 1", absl::StrCat(interval),
                  "growth_interval: 2000"});
    }
    WEIR_RETURN_IF_ERROR(check.status());
    return std::vector<sbp::TensorType>(2, sbp::TensorType{DType::kF32, {}});
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder(" -> , ", inputs, outputs).Build();
  };
  def.flops = FlopsPerOutput(2);
  return def;
}

WEIR_REGISTER_OP(SumSquaresDef());
WEIR_REGISTER_OP(ClipScaleDef());
WEIR_REGISTER_OP(AdaptLossScaleDef());

}  // namespace
}  // namespace weir::ops
