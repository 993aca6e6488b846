// attention (multi-head and grouped-query) and its gradient. Query head i uses key and
// value head i / r, where r is the number of query heads per key head.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

const std::vector<AttrSchema>& AttentionAttrs() {
  static const auto* attrs = new std::vector<AttrSchema>{
      {"causal", AttrKind::kBool, true, "position i attends to positions up to i only"},
      {"scale", AttrKind::kReal, 0.0, "factor of the scores; 0: 1 / sqrt(d)"},
      {"window", AttrKind::kInt, int64_t{0},
       "position i attends to the last `window` positions up to i, itself among them; 0: to all up "
       "to i. Only with causal"}};
  return *attrs;
}

// q, k and v are operands 0 to 2 of attention and of its gradient.
void CheckHeads(const Attributes& attrs, OperandCheck& check) {
  check.Real(0);
  for (int i = 0; i < 3; ++i) {
    check.SameType(i, 0).Rank(i, 4).SameSize(i, 0, 0, 0).SameSize(i, 3, 0, 3);
    if (attrs.Bool("causal", true)) check.SameSize(i, 1, 0, 1);
  }
  check.SameShape(2, 1);
  const int64_t window = attrs.Int("window", 0);
  if (window < 0 || (window > 0 && !attrs.Bool("causal", true))) {
    check.Fail({"W0310", "", "window of 0 or more, and 0 without causal", absl::StrCat(window),
                "window: 0"});
  }
  if (!check.status().ok()) return;
  const sbp::TensorDim& heads = check.dim(0, 2);
  const sbp::TensorDim& groups = check.dim(1, 2);
  if (groups.size > 0 && heads.size % groups.size == 0) return;
  check.Fail({"W0308", "",
              absl::StrCat("heads of q to be a multiple of the heads of k (", groups.name, "=",
                           groups.size, ")"),
              absl::StrCat(heads.name, "=", heads.size),
              absl::StrCat(groups.name, "=", heads.size, " for plain attention")});
}

std::string HeadsText(const std::vector<sbp::TensorType>& inputs) {
  return inputs[0].dims[2].size == inputs[1].dims[2].size ? "g" : "(g r)";
}

// Returns the rule of `text`, where h stands for the heads of q and t for the positions of k and v:
// those of q if the attention is causal.
RuleBuilder AttentionRule(const Attributes& attrs, const std::string& text,
                          const std::vector<sbp::TensorType>& inputs,
                          const std::vector<sbp::TensorType>& outputs) {
  const std::string heads = HeadsText(inputs);
  const bool causal = attrs.Bool("causal", true);
  std::string full;
  for (char c : text) full += c == 'h' ? heads : std::string(1, c == 't' && causal ? 's' : c);
  RuleBuilder rule(full, inputs, outputs);
  rule.Named("g", inputs[0].dims[2].name).Whole("s").Whole("d");
  if (!causal) rule.Whole("t");
  if (heads != "g") rule.Named("r", absl::StrCat(inputs[0].dims[2].name, ".per_group")).Whole("r");
  return rule;
}

// Returns the multiply-adds of one product of scores: queries times the keys that they see.
double ScoreFlops(const Attributes& attrs, const std::vector<sbp::TensorType>& inputs) {
  const auto keys = static_cast<double>(inputs[1].dims[1].size);
  double seen = attrs.Bool("causal", true) ? (keys + 1) / 2 : keys;
  if (attrs.Int("window", 0) > 0)
    seen = std::min(seen, static_cast<double>(attrs.Int("window", 0)));
  return 2.0 * static_cast<double>(inputs[0].num_elements()) * seen;
}

absl::Status AttentionGradient(GradientBuilder& b) {
  WEIR_RETURN_IF_ERROR(ExpectNoGrad(b, "attention", 1, "lse"));
  ValueId d_o = OutputGrad(b, 0);
  if (d_o < 0 || !(b.needs_grad(0) || b.needs_grad(1) || b.needs_grad(2))) return absl::OkStatus();
  std::vector<ValueId> grads =
      b.Add("attention_grad", {b.input(0), b.input(1), b.input(2), b.output(0), b.output(1), d_o},
            b.attrs());
  for (int i = 0; i < 3; ++i) {
    if (b.needs_grad(i)) SetGrad(b, i, grads[i]);
  }
  return absl::OkStatus();
}

OpDef AttentionDef() {
  OpDef def;
  def.schema = {
      .name = "attention",
      .doc = "o = softmax(scale q k^T) v per head; several query heads may share a key head.",
      .inputs = {{.name = "q", .doc = "[b, s, h, d]"},
                 {.name = "k", .doc = "[b, t, g, d], h a multiple of g; t is s if causal"},
                 {.name = "v", .doc = "[b, t, g, d]"}},
      .outputs = {{.name = "o", .doc = "like q"},
                  {.name = "lse",
                   .optional = true,
                   .doc = "f32[b, h, s], log of the sum of exp of the scores"}},
      .attrs = AttentionAttrs(),
      .factors =
          "b s (g r) d, b t g d, b t g d -> b s (g r) d, b (g r) s; s, t, r and d are whole"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"q", "k", "v"});
    CheckHeads(in.attrs, check);
    WEIR_RETURN_IF_ERROR(check.status());
    const auto& q = in.inputs[0].dims;
    return std::vector<sbp::TensorType>{in.inputs[0],
                                        sbp::TensorType{DType::kF32, {q[0], q[2], q[1]}}};
  };
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    return AttentionRule(attrs, "b s h d, b t g d, b t g d -> b s h d, b h s", inputs, outputs)
        .Build();
  };
  def.gradient = AttentionGradient;
  def.flops = [](const Attributes& attrs, const auto& inputs, const auto&) {
    return 2 * ScoreFlops(attrs, inputs);
  };
  return def;
}

OpDef AttentionGradDef() {
  OpDef def;
  def.schema = {.name = "attention_grad",
                .doc = "Gradients of attention; the scores are computed again, block by block.",
                .inputs = {{.name = "q", .doc = "[b, s, h, d]"},
                           {.name = "k", .doc = "[b, t, g, d]"},
                           {.name = "v", .doc = "[b, t, g, d]"},
                           {.name = "o", .doc = "result of attention"},
                           {.name = "lse", .doc = "f32[b, h, s]"},
                           {.name = "do", .doc = "like o"}},
                .outputs = {{.name = "dq", .doc = "like q"},
                            {.name = "dk", .doc = "like k"},
                            {.name = "dv", .doc = "like v"}},
                .attrs = AttentionAttrs(),
                .internal = true,
                .factors =
                    "b s (g r) d, b t g d, b t g d, b s (g r) d, b (g r) s, b s (g r) d -> b s (g "
                    "r) d, b t g d, b t g d; s, t, r and d are whole; linear in do"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"q", "k", "v", "o", "lse", "do"});
    CheckHeads(in.attrs, check);
    check.SameType(3, 0).SameShape(3, 0).SameType(5, 0).SameShape(5, 0);
    check.Is(4, DType::kF32)
        .Rank(4, 3)
        .SameSize(4, 0, 0, 0)
        .SameSize(4, 1, 0, 2)
        .SameSize(4, 2, 0, 1);
    WEIR_RETURN_IF_ERROR(check.status());
    return std::vector<sbp::TensorType>{in.inputs[0], in.inputs[1], in.inputs[2]};
  };
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    return AttentionRule(
               attrs,
               "b s h d, b t g d, b t g d, b s h d, b h s, b s h d -> b s h d, b t g d, b t g d",
               inputs, outputs)
        .Linear({5})
        .Build();
  };
  def.flops = [](const Attributes& attrs, const auto& inputs, const auto&) {
    return 5 * ScoreFlops(attrs, inputs);
  };
  return def;
}

WEIR_REGISTER_OP(AttentionDef());
WEIR_REGISTER_OP(AttentionGradDef());

}  // namespace
}  // namespace weir::ops
