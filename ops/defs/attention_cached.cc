// attention_cached is causal attention at a few positions of each sequence. The op keeps the keys
// and values of all positions that it was given, so that each position is computed once. They lie
// in pages of a pool: a table says for each sequence which pages have its positions.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/defs/at_positions.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

absl::Status CheckCached(const InferInput& in) {
  OperandCheck check(in, {"q", "k", "v", "positions", "table"});
  check.Real(0);
  for (int i = 0; i < 3; ++i) {
    check.SameType(i, 0).Rank(i, 4).SameSize(i, 0, 0, 0).SameSize(i, 1, 0, 1).SameSize(i, 3, 0, 3);
  }
  check.SameShape(2, 1);
  check.Is(3, DType::kI32).Rank(3, 2).SameSize(3, 0, 0, 0).SameSize(3, 1, 0, 1);
  check.Is(4, DType::kI32).Rank(4, 2).SameSize(4, 0, 0, 0);
  WEIR_RETURN_IF_ERROR(check.status());
  for (const char* name : {"pages", "page_size"}) {
    if (in.attrs.Int(name) >= 1 && in.attrs.Int(name) <= INT32_MAX) continue;
    check.Fail({"W0310", "", absl::StrCat(name, " from 1 to below 2^31"),
                absl::StrCat(in.attrs.Int(name)), absl::StrCat(name, ": 16")});
  }
  WEIR_RETURN_IF_ERROR(check.status());
  if (check.dim(0, 0).size > INT32_MAX / in.attrs.Int("pages")) {
    check.Fail({"W0310", "", "fewer than 2^31 pages, which i32 can name",
                absl::StrCat(in.attrs.Int("pages"), " for each of ", check.dim(0, 0).size, " rows"),
                "larger pages"});
  }
  if (check.dim(4, 1).size > INT32_MAX / in.attrs.Int("page_size")) {
    check.Fail(
        {"W0310", "", "fewer than 2^31 positions of a sequence, which i32 can name",
         absl::StrCat(check.dim(4, 1).size, " pages of ", in.attrs.Int("page_size"), " positions"),
         "fewer entries of the table"});
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
  RuleBuilder rule(
      absl::StrCat(q, ", b s g d, b s g d, b s, b n -> ", q, ", (b p) t g d, (b p) t g d"), inputs,
      outputs);
  rule.Named("g", inputs[0].dims[2].name).Whole("s").Whole("n").Whole("t").Whole("d");
  if (grouped) rule.Named("r", absl::StrCat(inputs[0].dims[2].name, ".per_group")).Whole("r");
  return rule.Build();
}

OpDef AttentionCachedDef() {
  OpDef def;
  def.schema = {
      .name = "attention_cached",
      .doc =
          "Causal attention of new positions to all positions that earlier calls were given, whose "
          "keys and values the op keeps in pages. It runs models; it has no gradient.",
      .inputs = {{.name = "q", .doc = "[b, s, h, d]"},
                 {.name = "k", .doc = "[b, s, g, d], h a multiple of g"},
                 {.name = "v", .doc = "[b, s, g, d]"},
                 {.name = "positions",
                  .doc = "i32[b, s], the position of each query, key and value in its sequence; "
                         "without a page the result is 0, and nothing is kept"},
                 {.name = "table",
                  .doc = "i32[b, n], entry i is the page of positions from i * page_size on; 0: no "
                         "page. Pages are those of the row's part of the pool, and no two rows "
                         "have a page in common",
                  .index =
                      IndexedAxis{.side = IndexedAxis::Side::kOutput, .operand = 1, .axis = 0}}},
      .outputs = {{.name = "o", .doc = "like q"},
                  {.name = "keys", .doc = "[b * pages, page_size, g, d], kept from step to step"},
                  {.name = "values", .doc = "like keys"}},
      .attrs = {{"pages", AttrKind::kInt, std::nullopt, "pages of the pool for each row"},
                {"page_size", AttrKind::kInt, std::nullopt, "positions of a page"},
                {"scale", AttrKind::kReal, 0.0, "factor of the scores; 0: 1 / sqrt(d)"},
                {"window", AttrKind::kInt, int64_t{0},
                 "a query attends to the last `window` positions up to its own; 0: to all"}},
      .factors =
          "b s (g r) d, b s g d, b s g d, b s, b n -> b s (g r) d, (b p) t g d, (b p) t g d; s, n, "
          "t, r and d are whole"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    WEIR_RETURN_IF_ERROR(CheckCached(in));
    sbp::TensorType keys = in.inputs[1];
    const int64_t pages = in.attrs.Int("pages");
    const sbp::TensorDim& rows = in.inputs[0].dims[0];
    keys.dims[0] = {"pages", rows.size * pages, rows.unit * pages};
    keys.dims[1] = {"page_size", in.attrs.Int("page_size"), 1};
    return std::vector<sbp::TensorType>{in.inputs[0], keys, keys};
  };
  def.rule = CachedRule;
  def.flops = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    auto seen =
        static_cast<double>(inputs[4].dims[1].size) * static_cast<double>(outputs[1].dims[1].size);
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
