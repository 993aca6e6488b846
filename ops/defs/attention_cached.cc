// attention_cached is causal attention at a few positions of each sequence. The op keeps the keys
// and values of all positions that it was given, so that each position is computed once.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/defs/at_positions.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

absl::Status CheckCached(const InferInput& in) {
  OperandCheck check(in, {"q", "k", "v", "positions"});
  check.Real(0);
  for (int i = 0; i < 3; ++i) {
    check.SameType(i, 0).Rank(i, 4).SameSize(i, 0, 0, 0).SameSize(i, 1, 0, 1).SameSize(i, 3, 0, 3);
  }
  check.SameShape(2, 1);
  check.Is(3, DType::kI32).Rank(3, 2).SameSize(3, 0, 0, 0).SameSize(3, 1, 0, 1);
  WEIR_RETURN_IF_ERROR(check.status());
  if (in.attrs.Int("slots") < 1) {
    check.Fail({"W0310", "", "slots of at least 1", absl::StrCat(in.attrs.Int("slots")),
                "slots: the longest sequence"});
  }
  if (in.attrs.Int("window", 0) < 0) {
    check.Fail(
        {"W0310", "", "window of 0 or more", absl::StrCat(in.attrs.Int("window")), "window: 0"});
  }
  const sbp::TensorDim &heads = check.dim(0, 2), &groups = check.dim(1, 2);
  if (groups.size < 1 || heads.size % groups.size != 0) {
    check.Fail({"W0308", "",
                absl::StrCat("heads of q to be a multiple of the heads of k (", groups.name, "=",
                             groups.size, ")"),
                absl::StrCat(heads.name, "=", heads.size),
                absl::StrCat(groups.name, "=", heads.size, " for plain attention")});
  }
  return check.status();
}

sbp::FactorRule CachedRule(const Attributes&, const std::vector<sbp::TensorType>& inputs,
                           const std::vector<sbp::TensorType>& outputs) {
  const bool grouped = inputs[0].dims[2].size != inputs[1].dims[2].size;
  const std::string q = grouped ? "b s (g r) d" : "b s g d";
  RuleBuilder rule(absl::StrCat(q, ", b s g d, b s g d, b s -> ", q, ", b t g d, b t g d"), inputs,
                   outputs);
  rule.Named("g", inputs[0].dims[2].name).Whole("s").Whole("t").Whole("d");
  if (grouped) rule.Named("r", absl::StrCat(inputs[0].dims[2].name, ".per_group")).Whole("r");
  return rule.Build();
}

OpDef AttentionCachedDef() {
  OpDef def;
  def.schema = {
      .name = "attention_cached",
      .doc =
          "Causal attention of new positions to all positions that earlier calls were given, whose "
          "keys and values the op keeps. It runs models; it has no gradient.",
      .inputs = {{.name = "q", .doc = "[b, s, h, d]"},
                 {.name = "k", .doc = "[b, s, g, d], h a multiple of g"},
                 {.name = "v", .doc = "[b, s, g, d]"},
                 {.name = "positions",
                  .doc = "i32[b, s], the position of each query, key and value: its slot",
                  .index =
                      IndexedAxis{.side = IndexedAxis::Side::kOutput, .operand = 1, .axis = 1}}},
      .outputs = {{.name = "o", .doc = "like q"},
                  {.name = "keys", .doc = "[b, slots, g, d], kept from step to step"},
                  {.name = "values", .doc = "[b, slots, g, d], kept from step to step"}},
      .attrs = {{"slots", AttrKind::kInt, std::nullopt, "positions that are kept"},
                {"scale", AttrKind::kReal, 0.0, "factor of the scores; 0: 1 / sqrt(d)"},
                {"window", AttrKind::kInt, int64_t{0},
                 "a query attends to the last `window` positions up to its own; 0: to all"}},
      .factors =
          "b s (g r) d, b s g d, b s g d, b s -> b s (g r) d, b t g d, b t g d; s, t, r and d are "
          "whole"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    WEIR_RETURN_IF_ERROR(CheckCached(in));
    sbp::TensorType keys = in.inputs[1];
    keys.dims[1] = {"slots", in.attrs.Int("slots"), 1};
    return std::vector<sbp::TensorType>{in.inputs[0], keys, keys};
  };
  def.rule = CachedRule;
  def.flops = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    auto seen = static_cast<double>(outputs[1].dims[1].size);
    if (attrs.Int("window", 0) > 0)
      seen = std::min(seen, static_cast<double>(attrs.Int("window", 0)));
    return 4.0 * static_cast<double>(inputs[0].num_elements()) * seen;
  };
  return def;
}

WEIR_REGISTER_OP(AttentionCachedDef());
WEIR_REGISTER_AT_POSITIONS(
    attention, {.num_inputs = 3, .if_true = "causal", .op = "attention_cached", .keeps = true});

}  // namespace
}  // namespace weir::ops
