// attention (multi-head and grouped-query) and its gradient. Query head i uses key and
// value head i / r, where r is the number of query heads per key head. A mask says for each score
// whether the key is seen, or what is added to the score.
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

// Checks the mask, operand `i`, [b or 1, h or 1, s or 1, t or 1].
void CheckMask(OperandCheck& check, int i) {
  if (!check.Has(i)) return;
  if (check.type(i).dtype != DType::kBool) check.SameType(i, 0);
  check.Rank(i, 4);
  if (!check.status().ok()) return;
  const sbp::TensorDim* scores[] = {&check.dim(0, 0), &check.dim(0, 2), &check.dim(0, 1),
                                    &check.dim(1, 1)};
  for (int d = 0; d < 4; ++d) {
    if (check.dim(i, d).size == scores[d]->size || check.dim(i, d).size == 1) continue;
    check.Fail({"W0308", "",
                absl::StrCat("a mask of batch, heads, queries and keys, [", scores[0]->size, ", ",
                             scores[1]->size, ", ", scores[2]->size, ", ", scores[3]->size,
                             "], each of them or 1"),
                ToText(check.type(i)), "reshape the mask, with sizes of 1 where it repeats"});
    return;
  }
}

// Returns the dimensions of the mask in the notation of rules: none where the mask repeats.
std::string MaskText(const std::vector<sbp::TensorType>& inputs, size_t i) {
  if (i >= inputs.size()) return "b h s t";
  const int64_t sizes[] = {inputs[0].dims[0].size, inputs[0].dims[2].size, inputs[0].dims[1].size,
                           inputs[1].dims[1].size};
  const char* letters[] = {"b", "h", "s", "t"};
  std::string text;
  for (int d = 0; d < 4; ++d)
    absl::StrAppend(&text, d == 0 ? "" : " ",
                    inputs[i].dims[d].size == sizes[d] ? letters[d] : "1");
  return text;
}

bool IsAddedMask(const std::vector<sbp::TensorType>& inputs, size_t i) {
  return i < inputs.size() && IsReal(inputs[i].dtype);
}

OperandSchema MaskSchema() {
  return {.name = "mask",
          .optional = true,
          .doc =
              "[b or 1, h or 1, s or 1, t or 1]; bool: which keys a query sees; real, like q: "
              "what is added to the scores, and hides the key below -1e5"};
}

// Sets the gradient of an added mask, which repeats along its dimensions of size 1.
void SetMaskGrad(GradientBuilder& b, ValueId grad) {
  const sbp::TensorType mask = b.input_type(3);
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < 4; ++d) {
    if (mask.dims[d].size != b.type(grad).dims[d].size) axes.push_back(d);
  }
  SetGrad(b, 3, SumOver(b, grad, axes));
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
  if (d_o < 0 || !(b.needs_grad(0) || b.needs_grad(1) || b.needs_grad(2) || b.needs_grad(3)))
    return absl::OkStatus();
  std::vector<ValueId> inputs = {b.input(0), b.input(1), b.input(2), b.output(0), b.output(1), d_o};
  if (b.num_inputs() > 3) inputs.push_back(b.input(3));
  const std::vector<ValueId> grads = b.Add("attention_grad", inputs, b.attrs());
  for (int i = 0; i < 3; ++i) {
    if (b.needs_grad(i)) SetGrad(b, i, grads[i]);
  }
  if (b.needs_grad(3)) SetMaskGrad(b, grads[3]);
  return absl::OkStatus();
}

OpDef AttentionDef() {
  OpDef def;
  def.schema = {
      .name = "attention",
      .doc =
          "o = softmax(scale q k^T + mask) v per head; several query heads may share a key "
          "head. The result of a query that sees no key is 0.",
      .inputs = {{.name = "q", .doc = "[b, s, h, d]"},
                 {.name = "k", .doc = "[b, t, g, d], h a multiple of g; t is s if causal"},
                 {.name = "v", .doc = "[b, t, g, d]"},
                 MaskSchema()},
      .outputs = {{.name = "o", .doc = "like q"},
                  {.name = "lse",
                   .optional = true,
                   .doc = "f32[b, h, s], log of the sum of exp of the scores"}},
      .attrs = AttentionAttrs(),
      .factors =
          "b s (g r) d, b t g d, b t g d, b (g r) s t -> b s (g r) d, b (g r) s; s, t, r and d "
          "are whole; the mask lacks the factors along which it repeats"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"q", "k", "v", "mask"});
    CheckHeads(in.attrs, check);
    CheckMask(check, 3);
    WEIR_RETURN_IF_ERROR(check.status());
    const auto& q = in.inputs[0].dims;
    return std::vector<sbp::TensorType>{in.inputs[0],
                                        sbp::TensorType{DType::kF32, {q[0], q[2], q[1]}}};
  };
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    const std::string text =
        absl::StrCat("b s h d, b t g d, b t g d, ", MaskText(inputs, 3), " -> b s h d, b h s");
    return AttentionRule(attrs, text, inputs, outputs).Build();
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
                           {.name = "do", .doc = "like o"},
                           MaskSchema()},
                .outputs = {{.name = "dq", .doc = "like q"},
                            {.name = "dk", .doc = "like k"},
                            {.name = "dv", .doc = "like v"},
                            {.name = "dscores",
                             .optional = true,
                             .doc = "f32[b, h, s, t], the gradient of what is added to the scores; "
                                    "only with a real mask"}},
                .attrs = AttentionAttrs(),
                .internal = true,
                .factors =
                    "b s (g r) d, b t g d, b t g d, b s (g r) d, b (g r) s, b s (g r) d, b (g r) s "
                    "t -> b s (g r) d, b t g d, b t g d, b (g r) s t; s, t, r and d are whole; "
                    "linear in do"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"q", "k", "v", "o", "lse", "do", "mask"});
    CheckHeads(in.attrs, check);
    CheckMask(check, 6);
    check.SameType(3, 0).SameShape(3, 0).SameType(5, 0).SameShape(5, 0);
    check.Is(4, DType::kF32)
        .Rank(4, 3)
        .SameSize(4, 0, 0, 0)
        .SameSize(4, 1, 0, 2)
        .SameSize(4, 2, 0, 1);
    WEIR_RETURN_IF_ERROR(check.status());
    std::vector<sbp::TensorType> grads = {in.inputs[0], in.inputs[1], in.inputs[2]};
    if (IsAddedMask(in.inputs, 6)) {
      grads.push_back(
          {DType::kF32, {check.dim(0, 0), check.dim(0, 2), check.dim(0, 1), check.dim(1, 1)}});
    }
    return grads;
  };
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    const std::string text =
        absl::StrCat("b s h d, b t g d, b t g d, b s h d, b h s, b s h d, ", MaskText(inputs, 6),
                     " -> b s h d, b t g d, b t g d, b h s t");
    return AttentionRule(attrs, text, inputs, outputs).Linear({5}).Build();
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
