// The ops of optimisers: weights and state are read and written in place.
//
// adamw, sgd and lion are whole updates, element by element. Other optimisers need more of a weight
// than its elements one by one. Such an update is a small graph: an op makes a direction out of the
// gradient, sums over the whole weight scale the direction, and weight_step moves the weight.
// compiler/passes/update_graphs.cc puts the ops together. The factor rules give the sums their
// layouts: a sum over a split axis is partial.
#include <utility>

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

absl::Status CheckSchedule(const InferInput& in) {
  WEIR_RETURN_IF_ERROR(CheckUpdateRate(in));
  for (const char* name : {"warmup_steps", "decay_steps"}) {
    if (in.attrs.Int(name) >= 0) continue;
    return Rejected({"W0310", "", absl::StrCat(name, " of at least 0"),
                     absl::StrCat(in.attrs.Int(name)), absl::StrCat(name, ": 0")});
  }
  return CheckChoice("decay", in.attrs.Str("decay", "constant"), {"constant", "cosine", "linear"});
}

absl::Status CheckUpdate(const InferInput& in) {
  OperandCheck check(in, {"grad", "scale"});
  WEIR_RETURN_IF_ERROR(check.Is(0, DType::kF32).Is(1, DType::kF32).Rank(1, 0).status());
  return CheckSchedule(in);
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

using Types = std::vector<sbp::TensorType>;

OperandSchema Scale() {
  return {.name = "scale", .doc = "f32 scalar, a factor of the gradient; below 0: nothing changes"};
}

// Returns a definition whose results are like input 0, all cut alike. Input 1 is the scale, and
// further inputs are like input 0.
OpDef LikeFirst(OpSchema schema, std::vector<std::string> decay_rates, double flops) {
  OpDef def;
  def.schema = std::move(schema);
  def.schema.internal = true;
  const size_t num_inputs = def.schema.inputs.size(), num_outputs = def.schema.outputs.size();
  std::string factors = "...,";
  for (size_t i = 2; i < num_inputs; ++i) factors += " , ...";
  factors += " -> ...";
  for (size_t i = 1; i < num_outputs; ++i) factors += ", ...";
  def.schema.factors = factors;
  std::vector<std::string> names;
  for (const OperandSchema& input : def.schema.inputs) names.push_back(input.name);
  const bool has_rate =
      def.schema.attrs.size() > 3 && def.schema.attrs.back().name == "min_learning_rate";
  def.infer = [=](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, names);
    check.Is(0, DType::kF32).Is(1, DType::kF32).Rank(1, 0);
    for (size_t i = 2; i < num_inputs; ++i)
      check.Is(static_cast<int>(i), DType::kF32).SameShape(static_cast<int>(i), 0);
    WEIR_RETURN_IF_ERROR(check.status());
    WEIR_RETURN_IF_ERROR(has_rate ? CheckSchedule(in) : CheckUpdateRate(in));
    for (const std::string& name : decay_rates) WEIR_RETURN_IF_ERROR(CheckDecayRate(in, name));
    return Types(num_outputs, in.inputs[0]);
  };
  def.rule = [factors](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder(factors, inputs, outputs).Build();
  };
  def.flops = FlopsPerOutput(flops);
  return def;
}

std::vector<AttrSchema> WithRate(std::vector<AttrSchema> attrs) {
  AddUpdateRate(&attrs);
  return attrs;
}

OpDef LionDef() {
  return LikeFirst(
      {.name = "lion",
       .doc = "One step of Lion: each element moves by the rate, in the direction of a sign.",
       .inputs = {{.name = "grad", .doc = "f32"}, Scale()},
       .outputs = {{.name = "weight", .doc = "f32, like grad; read and written"},
                   {.name = "momentum", .doc = "f32, like grad; state"}},
       .attrs = WithSchedule({{"beta1", AttrKind::kReal, 0.9, "share of momentum in the direction"},
                              {"beta2", AttrKind::kReal, 0.99, "decay of momentum"},
                              {"weight_decay", AttrKind::kReal, 0.0, "decoupled weight decay"}})},
      {"beta1", "beta2"}, 9);
}

OpDef AdamDirectionDef() {
  return LikeFirst(
      {.name = "adam_direction",
       .doc = "The direction of a step of AdamW, with the decay of the weight, for LAMB.",
       .inputs = {{.name = "grad", .doc = "f32"}, Scale(), {.name = "weight", .doc = "like grad"}},
       .outputs = {{.name = "direction", .doc = "f32, like grad"},
                   {.name = "m", .doc = "f32, like grad; state"},
                   {.name = "v", .doc = "f32, like grad; state"}},
       .attrs = WithRate({{"beta1", AttrKind::kReal, 0.9, "decay of m"},
                          {"beta2", AttrKind::kReal, 0.999, "decay of v"},
                          {"epsilon", AttrKind::kReal, 1e-6, "added to the root of v"},
                          {"weight_decay", AttrKind::kReal, 0.0, "share of the weight"}})},
      {"beta1", "beta2"}, 15);
}

OpDef MomentumDirectionDef() {
  return LikeFirst(
      {.name = "momentum_direction",
       .doc = "A mean of gradients that decays, or what Nesterov's step makes of it, for Muon.",
       .inputs = {{.name = "grad", .doc = "f32"}, Scale()},
       .outputs = {{.name = "direction", .doc = "f32, like grad"},
                   {.name = "momentum", .doc = "f32, like grad; state"}},
       .attrs = WithRate({{"momentum", AttrKind::kReal, 0.95, "decay of the mean"},
                          {"nesterov", AttrKind::kBool, true, "looks one gradient ahead"}})},
      {"momentum"}, 6);
}

OpDef MomentOfSquaresDef() {
  return LikeFirst(
      {.name = "moment_of_squares",
       .doc = "The decaying mean of squares of gradients or of their sums, for Adafactor.",
       .inputs = {{.name = "squares", .doc = "f32, sums of squares of gradients"}, Scale()},
       .outputs = {{.name = "now", .doc = "f32, the moment for readers of this update"},
                   {.name = "moment", .doc = "f32, like squares; state"}},
       .attrs = WithRate({{"beta2_decay", AttrKind::kReal, -0.8,
                           "update t weighs the new squares by t to this power"},
                          {"count", AttrKind::kReal, 1.0, "squares in each sum"}})},
      {}, 5);
}

OpDef WeightAverageDef() {
  return LikeFirst(
      {.name = "weight_average",
       .doc = "The exponential moving average of a weight over updates. The first "
              "update sets it to the weight, even if a scale below 0 leaves the weight "
              "as it is.",
       .inputs = {{.name = "weight", .doc = "f32, after the update"}, Scale()},
       .outputs = {{.name = "average", .doc = "f32, like weight; state"}},
       .attrs = WithRate(
           {{"average_decay", AttrKind::kReal, 0.999, "share of the average that stays"}})},
      {"average_decay"}, 3);
}

// ---- ops with sums over the whole weight ----

absl::StatusOr<Types> InferStep(const InferInput& in) {
  OperandCheck check(in, {"direction", "scale", "weight_squares", "direction_squares"});
  check.Is(0, DType::kF32);
  for (int i = 1; i < 4; ++i) check.Is(i, DType::kF32).Rank(i, 0);
  WEIR_RETURN_IF_ERROR(check.status());
  WEIR_RETURN_IF_ERROR(CheckSchedule(in));
  WEIR_RETURN_IF_ERROR(CheckChoice("by", in.attrs.Str("by"), {"plain", "lamb", "adafactor"}));
  const size_t needed = in.attrs.Str("by") == "plain" ? 2 : 4;
  if (in.inputs.size() == needed) return Types{in.inputs[0]};
  return Rejected({"W0310", "",
                   absl::StrCat("sums of the squares of weight and direction ",
                                needed == 2 ? "only by lamb and adafactor" : "for its choice `by`"),
                   absl::StrCat(in.inputs.size(), " operands, by ", in.attrs.Str("by")), ""});
}

OpDef WeightStepDef() {
  OpDef def;
  def.schema = {
      .name = "weight_step",
      .doc = "Moves a weight against a direction, by a length that may depend on both norms.",
      .inputs = {{.name = "direction", .doc = "f32"},
                 Scale(),
                 {.name = "weight_squares",
                  .optional = true,
                  .doc = "f32 scalar, sum over the weight"},
                 {.name = "direction_squares", .optional = true, .doc = "f32 scalar"}},
      .outputs = {{.name = "weight", .doc = "f32, like direction; read and written"}},
      .attrs =
          WithSchedule({{"by", AttrKind::kString, std::string("plain"), "plain, lamb or adafactor"},
                        {"factor", AttrKind::kReal, 1.0, "of the learning rate"},
                        {"count", AttrKind::kReal, 1.0, "elements of the whole weight (adafactor)"},
                        {"epsilon2", AttrKind::kReal, 1e-3, "least size of a weight (adafactor)"},
                        {"clip_threshold", AttrKind::kReal, 1.0,
                         "largest root mean square of a direction (adafactor)"},
                        {"weight_decay", AttrKind::kReal, 0.0, "decoupled weight decay"}}),
      .internal = true,
      .factors = "..., , , -> ..."};
  def.infer = InferStep;
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., , , -> ...", inputs, outputs).Build();
  };
  def.flops = FlopsPerOutput(3);
  return def;
}

OpDef UnitNormDef() {
  OpDef def;
  def.schema = {.name = "unit_norm",
                .doc = "x divided by its norm, for Muon.",
                .inputs = {{.name = "x", .doc = "f32"},
                           {.name = "squares", .doc = "f32 scalar, the sum of the squares of x"}},
                .outputs = {{.name = "y", .doc = "f32, like x"}},
                .attrs = {{"epsilon", AttrKind::kReal, 1e-7, "added to the norm"}},
                .internal = true,
                .factors = "..., -> ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"x", "squares"});
    WEIR_RETURN_IF_ERROR(check.Is(0, DType::kF32).Is(1, DType::kF32).Rank(1, 0).status());
    return Types{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., -> ...", inputs, outputs).Build();
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

// The leading dimensions count matrices. Without `columns` the moment has an element for each of
// grad.
const char* AdafactorText(size_t num_inputs) {
  return num_inputs > 3 ? "... r c, , ... r, ... c, ... -> ... r c" : "..., , ... -> ...";
}

OpDef AdafactorDirectionDef() {
  OpDef def;
  def.schema = {
      .name = "adafactor_direction",
      .doc = "The gradient over the root of its second moment, which may be a row and a column.",
      .inputs = {{.name = "grad", .doc = "f32 [..., r, c], or of any shape without columns"},
                 Scale(),
                 {.name = "rows", .doc = "f32 [..., r], means of squares; or like grad"},
                 {.name = "columns", .optional = true, .doc = "f32 [..., c], means of squares"},
                 {.name = "total", .optional = true, .doc = "f32 [...], the sum of rows"}},
      .outputs = {{.name = "direction", .doc = "f32, like grad"}},
      .attrs = {{"epsilon1", AttrKind::kReal, 1.1920928955078125e-7,
                 "least mean of rows, and root of the least moment"},
                {"count", AttrKind::kReal, 1.0, "elements in each sum of rows"}},
      .internal = true,
      .factors = "... r c, , ... r, ... c, ... -> ... r c"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"grad", "scale", "rows", "columns", "total"});
    for (int i = 0; i < 5; ++i) check.Is(i, DType::kF32);
    check.Rank(1, 0);
    if (in.inputs.size() == 4) {
      check.Fail({"W0310", "", "rows alone, or rows, columns and total", "rows and columns", ""});
    } else if (in.inputs.size() == 3) {
      check.SameShape(2, 0);
    } else {
      check.MinRank(0, 2).LeadingShape(2, 0, 1).LeadingShape(4, 0, 2);
      if (check.status().ok()) {
        const int rank = static_cast<int>(in.inputs[0].dims.size());
        check.Rank(3, rank - 1).LeadingShape(4, 3, 1).SameSize(3, -1, 0, -1);
      }
    }
    WEIR_RETURN_IF_ERROR(check.status());
    return Types{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder(AdafactorText(inputs.size()), inputs, outputs).Build();
  };
  def.flops = FlopsPerOutput(6);
  return def;
}

WEIR_REGISTER_OP(AdamWDef());
WEIR_REGISTER_OP(SgdDef());
WEIR_REGISTER_OP(LionDef());
WEIR_REGISTER_OP(AdamDirectionDef());
WEIR_REGISTER_OP(MomentumDirectionDef());
WEIR_REGISTER_OP(MomentOfSquaresDef());
WEIR_REGISTER_OP(WeightAverageDef());
WEIR_REGISTER_OP(WeightStepDef());
WEIR_REGISTER_OP(UnitNormDef());
WEIR_REGISTER_OP(AdafactorDirectionDef());

}  // namespace
}  // namespace weir::ops
