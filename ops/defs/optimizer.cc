// adamw and sgd: weights and state are read and written in place, element by element.
#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/update_rate_attrs.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

std::vector<AttrSchema> WithSchedule(std::vector<AttrSchema> attrs) {
  AddUpdateRate(&attrs);
  attrs.push_back({"learning_rate", AttrKind::kReal, 1e-3, "peak learning rate"});
  attrs.push_back({"warmup_steps", AttrKind::kInt, int64_t{0}, "updates of linear warm-up"});
  attrs.push_back(
      {"decay", AttrKind::kString, std::string("constant"), "constant, cosine or linear"});
  attrs.push_back({"decay_steps", AttrKind::kInt, int64_t{0}, "update at which the decay ends"});
  attrs.push_back({"min_learning_rate", AttrKind::kReal, 0.0, "learning rate after the decay"});
  return attrs;
}

absl::Status CheckUpdate(const InferInput& in) {
  OperandCheck check(in, {"grad", "scale"});
  WEIR_RETURN_IF_ERROR(check.Is(0, DType::kF32).Is(1, DType::kF32).Rank(1, 0).status());
  WEIR_RETURN_IF_ERROR(CheckUpdateRate(in));
  for (const char* name : {"warmup_steps", "decay_steps"}) {
    if (in.attrs.Int(name) >= 0) continue;
    return Rejected({"W0310", "", absl::StrCat(name, " of at least 0"),
                     absl::StrCat(in.attrs.Int(name)), absl::StrCat(name, ": 0")});
  }
  return CheckChoice("decay", in.attrs.Str("decay", "constant"), {"constant", "cosine", "linear"});
}

// Checks that attribute `name` is in [0, 1).
absl::Status CheckDecayRate(const InferInput& in, const std::string& name) {
  double value = in.attrs.Real(name);
  if (value >= 0 && value < 1) return absl::OkStatus();
  return Rejected({"W0310", "", absl::StrCat(name, " in [0, 1)"), absl::StrCat(value),
                   absl::StrCat(name, ": 0.9")});
}

OpDef AdamWDef() {
  OpDef def;
  def.schema = {
      .name = "adamw",
      .doc = "One step of AdamW with decoupled weight decay and bias correction.",
      .inputs = {{.name = "grad", .doc = "f32"},
                 {.name = "scale",
                  .doc = "f32 scalar, a factor of grad; below 0: nothing is written"}},
      .outputs = {{.name = "weight", .doc = "f32, like grad; read and written"},
                  {.name = "m", .doc = "f32, like grad; state"},
                  {.name = "v", .doc = "f32, like grad; state"}},
      .attrs = WithSchedule({{"beta1", AttrKind::kReal, 0.9, "decay of m"},
                             {"beta2", AttrKind::kReal, 0.999, "decay of v"},
                             {"epsilon", AttrKind::kReal, 1e-8, "added to the root of v"},
                             {"weight_decay", AttrKind::kReal, 0.0, "decoupled weight decay"}}),
      .internal = true,
      .factors = "..., -> ..., ..., ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    WEIR_RETURN_IF_ERROR(CheckUpdate(in));
    WEIR_RETURN_IF_ERROR(CheckDecayRate(in, "beta1"));
    WEIR_RETURN_IF_ERROR(CheckDecayRate(in, "beta2"));
    return std::vector<sbp::TensorType>(3, in.inputs[0]);
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., -> ..., ..., ...", inputs, outputs).Build();
  };
  def.flops = FlopsPerOutput(16);
  return def;
}

OpDef SgdDef() {
  OpDef def;
  def.schema = {
      .name = "sgd",
      .doc = "One step of gradient descent with momentum; weight decay is added to the gradient.",
      .inputs = {{.name = "grad", .doc = "f32"},
                 {.name = "scale",
                  .doc = "f32 scalar, a factor of grad; below 0: nothing is written"}},
      .outputs = {{.name = "weight", .doc = "f32, like grad; read and written"},
                  {.name = "momentum_buffer", .optional = true, .doc = "f32, like grad; state"}},
      .attrs =
          WithSchedule({{"momentum", AttrKind::kReal, 0.0, "factor of the buffer; 0: no buffer"},
                        {"weight_decay", AttrKind::kReal, 0.0, "added to the gradient"}}),
      .internal = true,
      .factors = "..., -> ..., ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    WEIR_RETURN_IF_ERROR(CheckUpdate(in));
    WEIR_RETURN_IF_ERROR(CheckDecayRate(in, "momentum"));
    return std::vector<sbp::TensorType>(2, in.inputs[0]);
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., -> ..., ...", inputs, outputs).Build();
  };
  def.flops = FlopsPerOutput(5);
  return def;
}

WEIR_REGISTER_OP(AdamWDef());
WEIR_REGISTER_OP(SgdDef());

}  // namespace
}  // namespace weir::ops
