#include "ops/testing/op_cases.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ops/defs/type_text.h"
#include "ops/testing/update_cases.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

using Ints = std::vector<int64_t>;
constexpr Fill kN = Fill::kNormal;
constexpr int64_t kPagesOfRow = 3;  // of Fill::kPages

std::string Text(const char* text) { return text; }

void AddElementwise(std::vector<OpCase>* cases) {
  const auto add_unary = [&](const char* op, Fill fill) {
    cases->push_back({op, op, {}, {"f32[a=5, b=7]"}, {fill}});
    cases->push_back({absl::StrCat(op, " of a scalar"), op, {}, {"f32[]"}, {fill}});
    const std::string grad = absl::StrCat(op, "_grad");
    if (OpRegistry::Find(grad) != nullptr)
      cases->push_back({grad, grad, {}, {"f32[a=5, b=7]", "f32[a=5, b=7]"}, {fill}});
  };
  for (const char* op : {"relu", "gelu", "gelu_exact", "silu", "sigmoid", "tanh", "softplus", "erf",
                         "exp", "expm1", "sin", "cos", "square", "abs", "sign", "step"}) {
    add_unary(op, Fill::kApart);
  }
  for (const char* op : {"floor", "ceil", "round"}) add_unary(op, Fill::kBetween);
  const auto add_with = [&](const std::string& op, const std::string& how, const Attributes& attrs,
                            Fill fill) {
    const std::string grad = absl::StrCat(op, "_grad");
    cases->push_back({op + how, op, attrs, {"f32[a=5, b=7]"}, {fill}});
    cases->push_back({grad + how, grad, attrs, {"f32[a=5, b=7]", "f32[a=5, b=7]"}, {fill}});
  };
  add_with("leaky_relu", "", {{"slope", 0.3}}, Fill::kApart);
  add_with("elu", "", {{"alpha", 0.7}}, Fill::kApart);
  add_with("clamp", "", {{"min", -0.5}, {"max", 1.0}}, Fill::kBetween);
  add_with("clamp", " from below", {{"min", 0.0}}, Fill::kApart);
  add_with("power", " of a whole exponent", {{"exponent", 3.0}}, Fill::kApart);
  add_with("power", " of another exponent", {{"exponent", 1.5}}, Fill::kPositive);
  for (const char* op : {"log", "log1p", "sqrt", "rsqrt", "reciprocal"})
    add_unary(op, Fill::kPositive);
  for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum"}) {
    // A divisor is well above 0.
    const std::vector<Fill> fills = {kN, Fill::kPositive};
    cases->push_back({op, op, {}, {"f32[a=5, b=7]", "f32[a=5, b=7]"}, fills});
    cases->push_back({absl::StrCat(op, " of a row"),
                      op,
                      {},
                      {"f32[a=5, b=2, c=6/2]", "f32[b=2, c=6/2]"},
                      fills});
    cases->push_back({absl::StrCat(op, " of a scalar"), op, {}, {"f32[a=5, b=7]", "f32[]"}, fills});
    cases->push_back({absl::StrCat(op, " of a column"),
                      op,
                      {},
                      {"f32[a=5, b=2, c=6/2]", "f32[a=5, one=1, c=6/2]"},
                      fills});
    cases->push_back({absl::StrCat(op, " of a column and a row"),
                      op,
                      {},
                      {"f32[a=5, one=1]", "f32[d=2, one=1, b=7]"},
                      fills});
  }
  cases->push_back({"scale", "scale", {{"factor", 2.5}}, {"f32[a=5, b=7]"}});
  cases->push_back(
      {"dropout", "dropout", {{"rate", 0.3}}, {"f32[a=5, b=7]"}, {}, -1, {}, 2e-5, 2, 3});
  cases->push_back(
      {"cast to bf16", "cast", {{"to", Text("bf16")}}, {"f32[a=5, b=7]"}, {}, -1, {}, 0.02});
  cases->push_back(
      {"cast to the same type", "cast", {{"to", Text("f32")}}, {"f32[a=5, b=7]"}, {}, -1, {}, 0});
  cases->push_back(
      {"cast from bf16", "cast", {{"to", Text("f32")}}, {"bf16[a=5, b=7]"}, {}, -1, {}, 0.04});
  cases->push_back(
      {"cast to f16", "cast", {{"to", Text("f16")}}, {"f32[a=5, b=7]"}, {}, -1, {}, 0.0025});
  cases->push_back(
      {"cast from f16", "cast", {{"to", Text("f32")}}, {"f16[a=5, b=7]"}, {}, -1, {}, 0.005});
  cases->push_back({"accumulate at first", "accumulate", {}, {"f32[a=5, b=7]"}, {}, -1, {kN}});
  cases->push_back({"accumulate", "accumulate", {}, {"f32[a=5, b=7]"}, {}, -1, {kN}, 2e-5, 0, 1});
  cases->push_back({"constant",
                    "constant",
                    {{"value", 0.25}, {"to", Text("f32[a=5, b=6/2]")}},
                    {},
                    {},
                    -1,
                    {},
                    0});
}

void AddMasks(std::vector<OpCase>* cases) {
  constexpr Fill kM = Fill::kMask, kS = Fill::kSteps;
  const auto add = [&](const std::string& name, const std::string& op, Attributes attrs,
                       std::vector<std::string> inputs, std::vector<Fill> fills) {
    cases->push_back({name, op, std::move(attrs), std::move(inputs), std::move(fills), -1, {}, 0});
  };
  for (const char* op : {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}) {
    add(op, op, {}, {"f32[a=5, b=7]", "f32[a=5, b=7]"}, {kS, kS});
    add(absl::StrCat(op, " of integers and a row"), op, {}, {"i32[a=5, b=2, c=6/2]", "i32[c=6/2]"},
        {kS, kS});
    add(absl::StrCat(op, " of a number"), op, {{"value", -1.0}}, {"i32[a=5, b=7]"}, {kS});
    add(absl::StrCat(op, " of a column and a row"), op, {}, {"f32[a=5, one=1]", "f32[one=1, b=7]"},
        {kS, kS});
  }
  add("equal of masks", "equal", {}, {"bool[a=5, b=7]", "bool[b=7]"}, {kM, kM});
  for (const char* op : {"logical_and", "logical_or", "logical_xor"}) {
    add(op, op, {}, {"bool[a=5, b=7]", "bool[a=5, b=7]"}, {kM, kM});
    add(absl::StrCat(op, " of a column and a row"), op, {}, {"bool[a=5, one=1]", "bool[b=7]"},
        {kM, kM});
  }
  add("logical_not", "logical_not", {}, {"bool[a=5, b=7]"}, {kM});
  add("where", "where", {}, {"bool[a=5, b=7]", "f32[a=5, b=7]", "f32[a=5, b=7]"}, {kM, kN, kN});
  add("where of rows", "where", {}, {"bool[b=7]", "f32[a=5, b=7]", "f32[a=5, one=1]"},
      {kM, kN, kN});
  add("where of a scalar", "where", {}, {"bool[a=5, b=7]", "f32[]", "f32[b=7]"}, {kM, kN, kN});
  add("where of the mask's shape", "where", {}, {"bool[d=2, a=5, b=7]", "f32[a=5, b=7]", "f32[]"},
      {kM, kN, kN});
  add("where and a number", "where", {{"value", -1.5}}, {"bool[a=5, one=1]", "f32[a=5, b=7]"},
      {kM, kN});
  add("where and zero", "where", {}, {"bool[a=5, b=7]", "f32[a=5, b=7]"}, {kM, kN});
  add("cast of a mask", "cast", {{"to", Text("f32")}}, {"bool[a=5, b=7]"}, {kM});
  add("cast of a mask to integers", "cast", {{"to", Text("i32")}}, {"bool[a=5, b=7]"}, {kM});
  add("cast to a mask", "cast", {{"to", Text("bool")}}, {"f32[a=5, b=7]"}, {kS});
  add("cast of integers to a mask", "cast", {{"to", Text("bool")}}, {"i32[a=5, b=7]"}, {kS});
  add("cast of integers", "cast", {{"to", Text("f32")}}, {"i32[a=5, b=7]"}, {kS});
  add("cast to integers", "cast", {{"to", Text("i32")}}, {"f32[a=5, b=7]"}, {kN});
  add("step_mean", "step_mean", {}, {"f32[]"}, {kN});
}

void AddMatmul(std::vector<OpCase>* cases) {
  cases->push_back({"matmul", "matmul", {}, {"f32[b=5, s=2, k=6]", "f32[k=6, n=7]"}, {}, 1});
  cases->push_back(
      {"matmul and pre", "matmul", {}, {"f32[b=5, k=6]", "f32[k=6, n=7]", "f32[n=7]"}});
  cases->push_back({"matmul of heads",
                    "matmul",
                    {},
                    {"f32[b=3, heads=12/4]", "f32[heads=12/4, n=5]", "f32[n=5]"},
                    {},
                    1});
  cases->push_back({"matmul to heads",
                    "matmul",
                    {{"transpose_w", true}},
                    {"f32[b=3, k=5]", "f32[heads=12/4, k=5]"},
                    {},
                    1});
  cases->push_back({"matmul of a vector", "matmul", {}, {"f32[k=5]", "f32[k=5, n=7]"}, {}, 1});
  for (const char* activation : {"relu", "gelu", "gelu_exact", "silu"}) {
    cases->push_back({absl::StrCat("matmul with ", activation),
                      "matmul",
                      {{"activation", Text(activation)}},
                      {"f32[b=5, k=6]", "f32[k=6, n=7]", "f32[n=7]"},
                      {},
                      2});
  }
  cases->push_back({"matmul with gelu of another name",
                    "matmul",
                    {{"activation", Text("gelu")}, {"transpose_w", true}},
                    {"f32[b=5, x=6]", "f32[n=7, k=6]"},
                    {},
                    1});
  cases->push_back(
      {"matmul_grad_w", "matmul_grad_w", {}, {"f32[b=5, s=2, k=6]", "f32[b=5, s=2, n=7]"}});
  cases->push_back({"matmul_grad_w transposed",
                    "matmul_grad_w",
                    {{"transpose_w", true}, {"to", Text("heads=12/4, in=5/1")}},
                    {"f32[b=3, k=5]", "f32[b=3, n=12/4]"}});
  cases->push_back({"matmul_grad_w of vectors", "matmul_grad_w", {}, {"f32[k=5]", "f32[n=7]"}});
}

void AddBatchedMatmul(std::vector<OpCase>* cases) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      cases->push_back({absl::StrCat("batched_matmul", ta ? " of a^T" : "", tb ? " and b^T" : ""),
                        "batched_matmul",
                        {{"transpose_a", ta}, {"transpose_b", tb}},
                        {ta ? "f32[b=5, h=6/2, k=4, m=3]" : "f32[b=5, h=6/2, m=3, k=4]",
                         tb ? "f32[b=5, h=6/2, n=7, k=4]" : "f32[b=5, h=6/2, k=4, n=7]"}});
    }
  }
  cases->push_back(
      {"batched_matmul of two matrices", "batched_matmul", {}, {"f32[m=5, k=6]", "f32[k=6, n=7]"}});
}

void AddEmbedding(std::vector<OpCase>* cases) {
  cases->push_back({"embedding",
                    "embedding",
                    {},
                    {"f32[v=7, h=5]", "i32[b=4, s=3]"},
                    {kN, Fill::kIds},
                    -1,
                    {},
                    0});
  cases->push_back({"embedding_grad",
                    "embedding_grad",
                    {{"vocab", int64_t{7}}, {"vocab_dim", Text("v")}, {"vocab_unit", int64_t{1}}},
                    {"i32[b=4, s=3]", "f32[b=4, s=3, h=5]"},
                    {Fill::kIds, kN}});
}

// Indices from -1 to 8 into 7 places: some are outside, as those of another shard are.
void AddIndexing(std::vector<OpCase>* cases) {
  constexpr Fill kI = Fill::kIds;
  const auto along = [](int64_t axis, const char* to = nullptr) {
    Attributes attrs = {{"axis", axis}};
    if (to != nullptr) attrs.Set("to", Text(to));
    return attrs;
  };
  const auto add = [&](const std::string& name, const char* op, Attributes attrs,
                       std::vector<std::string> inputs, std::vector<Fill> fills, double tolerance) {
    cases->push_back(
        {name, op, std::move(attrs), std::move(inputs), std::move(fills), -1, {}, tolerance});
  };
  add("take", "take", along(1), {"f32[a=5, v=7, c=2]", "i32[i=4, j=3]"}, {kN, kI}, 0);
  add("take of heads", "take", along(1), {"f32[a=5, v=14/2, c=4/2]", "i32[i=3]"}, {kN, kI}, 0);
  add("take of one", "take", along(0), {"f32[v=7, c=5]", "i32[]"}, {kN, kI}, 0);
  add("take of integers", "take", along(0), {"i32[v=7, c=5]", "i32[i=5]"}, {Fill::kSteps, kI}, 0);
  add("gather", "gather", along(1), {"f32[a=5, v=7, c=2]", "i32[a=5, i=4, c=2]"}, {kN, kI}, 0);
  add("gather along the last axis", "gather", along(1), {"f32[a=5, v=7]", "i32[a=5, i=3]"},
      {kN, kI}, 0);
  add("gather of masks", "gather", along(0), {"bool[v=7, c=5]", "i32[i=5, c=5]"}, {Fill::kMask, kI},
      0);
  add("segment_sum", "segment_sum", along(1, "a=5, s=7, c=2"),
      {"f32[a=5, i=4, j=3, c=2]", "i32[i=4, j=3]"}, {kN, kI}, 2e-5);
  add("segment_sum of rows", "segment_sum", along(0, "s=14/2, c=5"),
      {"f32[i=11, c=5]", "i32[i=11]"}, {kN, kI}, 2e-5);
  add("scatter_add", "scatter_add", along(1, "a=5, s=7, c=2"),
      {"f32[a=5, i=6, c=2]", "i32[a=5, i=6, c=2]"}, {kN, kI}, 2e-5);
  add("scatter_add along the last axis", "scatter_add", along(1, "a=5, s=7"),
      {"f32[a=5, i=6]", "i32[a=5, i=6]"}, {kN, kI}, 2e-5);
  add("one_hot", "one_hot", {{"to", Text("b=4, s=3, v=7")}}, {"i32[b=4, s=3]"}, {kI}, 0);
  add("one_hot of a scalar in bf16", "one_hot",
      {{"to", Text("v=14/2")}, {"out_dtype", Text("bf16")}}, {"i32[]"}, {kI}, 0);
}

void AddSelections(std::vector<OpCase>* cases) {
  const std::string x = "f32[a=5, v=7, c=2]";
  const auto add = [&](const std::string& name, const char* op, Attributes attrs,
                       const std::string& input, Fill fill, double tolerance) {
    cases->push_back({name, op, std::move(attrs), {input}, {fill}, -1, {}, tolerance});
  };
  constexpr Fill kD = Fill::kDistinct, kS = Fill::kSteps;
  add("top_k", "top_k", {{"axis", int64_t{1}}, {"k", int64_t{3}}}, x, kD, 0);
  add("top_k of the smallest", "top_k",
      {{"axis", int64_t{1}}, {"k", int64_t{7}}, {"largest", false}}, "f32[a=5, v=7]", kD, 0);
  add("top_k of heads", "top_k",
      {{"axis", int64_t{0}}, {"k", int64_t{2}}, {"to", Text("k=2, h=6/2")}}, "f32[v=5, h=6/2]", kD,
      0);
  add("argmax", "argmax", {{"axis", int64_t{1}}}, x, kS, 0);
  add("argmax of the smallest", "argmax", {{"axis", int64_t{0}}, {"largest", false}},
      "f32[v=5, c=7]", kS, 0);
  add("cumsum", "cumsum", {{"axis", int64_t{1}}}, x, kN, 2e-5);
  add("cumsum of those before", "cumsum", {{"axis", int64_t{1}}, {"exclusive", true}},
      "f32[a=5, n=7]", kN, 2e-5);
  add("cumsum from the end", "cumsum",
      {{"axis", int64_t{0}}, {"reverse", true}, {"exclusive", true}}, "f32[n=7, h=34/2]", kN, 2e-5);
}

void AddNorms(std::vector<OpCase>* cases) {
  cases->push_back(
      {"layer_norm", "layer_norm", {}, {"f32[b=5, s=2, h=6]", "f32[h=6]", "f32[h=6]"}});
  cases->push_back({"layer_norm without beta",
                    "layer_norm",
                    {{"epsilon", 0.1}},
                    {"f32[b=5, h=7]", "f32[h=7]"},
                    {},
                    1});
  cases->push_back(
      {"layer_norm_grad",
       "layer_norm_grad",
       {},
       {"f32[b=5, s=2, h=6]", "f32[h=6]", "f32[b=5, s=2]", "f32[b=5, s=2]", "f32[b=5, s=2, h=6]"},
       {kN, kN, kN, Fill::kPositive, kN}});
  cases->push_back({"rms_norm", "rms_norm", {}, {"f32[b=5, s=2, h=6]", "f32[h=6]"}});
  cases->push_back({"rms_norm_grad",
                    "rms_norm_grad",
                    {},
                    {"f32[b=5, s=2, h=6]", "f32[h=6]", "f32[b=5, s=2]", "f32[b=5, s=2, h=6]"},
                    {kN, kN, Fill::kPositive, kN}});
  cases->push_back({"softmax", "softmax", {}, {"f32[b=5, s=2, n=7]"}});
  cases->push_back(
      {"softmax_grad", "softmax_grad", {}, {"f32[b=5, s=2, n=7]", "f32[b=5, s=2, n=7]"}});
}

// Attention and its gradient with masks that repeat along all and along no axis.
void AddMaskedAttention(std::vector<OpCase>* cases) {
  const std::string q = "f32[b=2, s=5, h=6/2, d=4]", k = "f32[b=2, s=5, g=3, d=4]";
  const std::string longer = "f32[b=2, t=7, g=3, d=4]", lse = "f32[b=2, h=6/2, s=5]";
  const auto add = [&](const std::string& how, bool causal, const std::string& keys,
                       const std::string& mask, Fill fill) {
    const Attributes attrs = {{"causal", causal}};
    cases->push_back({absl::StrCat("attention", how),
                      "attention",
                      attrs,
                      {q, keys, keys, mask},
                      {kN, kN, kN, fill}});
    cases->push_back({absl::StrCat("attention_grad", how),
                      "attention_grad",
                      attrs,
                      {q, keys, keys, q, lse, q, mask},
                      {kN, kN, kN, kN, Fill::kPositive, kN, fill},
                      mask[0] == 'b' ? 3 : -1,
                      {},
                      1e-4});
  };
  constexpr Fill kM = Fill::kMask;
  add(" with padding", false, longer, "bool[b=2, one=1, two=1, t=7]", kM);
  add(" with causal padding", true, k, "bool[b=2, one=1, two=1, s=5]", kM);
  add(" with a mask", false, longer, "bool[b=2, h=6/2, s=5, t=7]", kM);
  add(" with a bias", false, longer, "f32[b=2, h=6/2, s=5, t=7]", kN);
  add(" with a causal bias", true, k, "f32[b=2, h=6/2, s=5, u=5]", kN);
  add(" with a bias of heads", false, longer, "f32[one=1, h=6/2, s=5, t=7]", kN);
  add(" with a bias of keys", false, longer, "f32[one=1, two=1, three=1, t=7]", kN);
}

// Some positions have no page, some pages serve two parts of a sequence, and some positions come
// twice.
void AddCachedAttention(std::vector<OpCase>* cases) {
  const auto add = [&](const char* how, const Attributes& attrs, const char* q, const char* k) {
    cases->push_back({absl::StrCat("attention_cached", how),
                      "attention_cached",
                      attrs,
                      {q, k, k, "i32[b=3, s=4]", "i32[b=3, n=4]"},
                      {kN, kN, kN, Fill::kIds, Fill::kPages},
                      -1,
                      {kN, kN, kN}});
  };
  const Attributes pool = {{"pages", kPagesOfRow}, {"page_size", int64_t{2}}};
  add("", pool, "f32[b=3, s=4, h=3, d=5]", "f32[b=3, s=4, h=3, d=5]");
  Attributes window = pool;
  window.Set("window", int64_t{3});
  window.Set("scale", 0.3);
  add(" of grouped heads in a window", window, "f32[b=3, s=4, h=6/2, d=5]",
      "f32[b=3, s=4, g=3, d=5]");
}

void AddAttention(std::vector<OpCase>* cases) {
  cases->push_back(
      {"attention",
       "attention",
       {},
       {"f32[b=2, s=5, h=3, d=4]", "f32[b=2, s=5, h=3, d=4]", "f32[b=2, s=5, h=3, d=4]"}});
  cases->push_back(
      {"attention of groups",
       "attention",
       {},
       {"f32[b=2, s=5, h=6/2, d=4]", "f32[b=2, s=5, g=3, d=4]", "f32[b=2, s=5, g=3, d=4]"}});
  cases->push_back(
      {"attention to all",
       "attention",
       {{"causal", false}, {"scale", 0.3}},
       {"f32[b=2, s=5, h=4/2, d=6]", "f32[b=2, s=5, g=2, d=6]", "f32[b=2, s=5, g=2, d=6]"},
       {},
       1});
  cases->push_back(
      {"attention to other positions",
       "attention",
       {{"causal", false}},
       {"f32[b=2, s=5, h=6/2, d=4]", "f32[b=2, t=7, g=3, d=4]", "f32[b=2, t=7, g=3, d=4]"},
       {},
       1});
  cases->push_back(
      {"attention in a window",
       "attention",
       {{"window", int64_t{2}}},
       {"f32[b=2, s=5, h=3, d=4]", "f32[b=2, s=5, h=3, d=4]", "f32[b=2, s=5, h=3, d=4]"}});
  std::string q = "f32[b=2, s=5, h=6/2, d=4]", k = "f32[b=2, s=5, g=3, d=4]";
  cases->push_back({"attention_grad",
                    "attention_grad",
                    {},
                    {q, k, k, q, "f32[b=2, h=6/2, s=5]", q},
                    {kN, kN, kN, kN, Fill::kPositive, kN},
                    -1,
                    {},
                    1e-4});
  cases->push_back({"attention_grad to all",
                    "attention_grad",
                    {{"causal", false}, {"scale", 0.3}},
                    {q, k, k, q, "f32[b=2, h=6/2, s=5]", q},
                    {kN, kN, kN, kN, Fill::kPositive, kN},
                    -1,
                    {},
                    1e-4});
  cases->push_back({"attention_grad in a window",
                    "attention_grad",
                    {{"window", int64_t{3}}},
                    {q, k, k, q, "f32[b=2, h=6/2, s=5]", q},
                    {kN, kN, kN, kN, Fill::kPositive, kN},
                    -1,
                    {},
                    1e-4});
  AddMaskedAttention(cases);
  cases->push_back({"rotary", "rotary", {}, {"f32[b=2, s=5, h=3, d=6]"}});
  cases->push_back({"rotary backwards",
                    "rotary",
                    {{"inverse", true}, {"base", 100.0}},
                    {"f32[b=2, s=5, h=3, d=6]"}});
  cases->push_back({"rotary at positions",
                    "rotary",
                    {},
                    {"f32[b=3, s=5, h=3, d=6]", "i32[b=3, s=5]"},
                    {kN, Fill::kIds}});
  AddCachedAttention(cases);
}

void AddConvolutions(std::vector<OpCase>* cases) {
  struct Geometry {
    const char* name;
    Attributes attrs;
    std::string x, w, y;  // of conv
    Ints more;            // output_padding of conv_transpose
  };
  const Ints two{2}, one{1};
  const std::vector<Geometry> geometries = {
      {"", {}, "b=5, k=4, s=6, t=5", "n=3, k=4, v=3, u=2", "b=5, n=3, s=4, t=4", {}},
      {" with stride and padding",
       {{"stride", two}, {"padding", Ints{1, 2}}, {"dilation", Ints{1, 2}}},
       "b=3, k=5, s=7, t=6",
       "n=4, k=5, v=3, u=3",
       "b=3, n=4, s=4, t=3",
       {0, 1}},
      {" of points", {}, "b=3, k=4, s=5, t=3", "n=5, k=4, v=1, u=1", "b=3, n=5, s=5, t=3", {}},
      {" over time",
       {{"stride", two}, {"padding", one}},
       "b=3, k=4, s=7",
       "n=5, k=4, v=3",
       "b=3, n=5, s=4",
       {}},
      {" over three dimensions",
       {{"padding", Ints{1, 0, 1}}},
       "b=2, k=3, s=3, t=4, u=2",
       "n=2, k=3, v=2, w=2, z=2",
       "b=2, n=2, s=4, t=3, u=3",
       {}},
      {" per channel",
       {{"groups", int64_t{5}}, {"padding", one}},
       "b=3, k=5, s=5, t=4",
       "n=5, one=1, v=3, u=3",
       "b=3, n=5, s=5, t=4",
       {}},
      {" of groups",
       {{"groups", int64_t{3}}},
       "b=3, k=6/2, s=4, t=4",
       "n=9/3, k=2, v=2, u=3",
       "b=3, n=9/3, s=3, t=2",
       {}},
  };
  const auto f32 = [](const std::string& dims) { return absl::StrCat("f32[", dims, "]"); };
  // Returns the first two items of a list of dimensions.
  const auto item = [](const std::string& dims, int i) {
    return std::string(absl::StripAsciiWhitespace(
        std::vector<std::string>(absl::StrSplit(dims, ','))[static_cast<size_t>(i)]));
  };
  for (const Geometry& g : geometries) {
    const std::string bias = absl::StrCat("f32[", item(g.w, 0), "]");
    cases->push_back({absl::StrCat("conv", g.name), "conv", g.attrs, {f32(g.x), f32(g.w), bias}});
    Attributes grad = g.attrs;
    grad.Set("to", g.w);
    cases->push_back(
        {absl::StrCat("conv_grad_w", g.name), "conv_grad_w", grad, {f32(g.x), f32(g.y)}});
    Attributes transposed = g.attrs;
    if (!g.more.empty()) transposed.Set("output_padding", g.more);
    cases->push_back({absl::StrCat("conv_transpose", g.name),
                      "conv_transpose",
                      transposed,
                      {f32(g.y), f32(g.w), absl::StrCat("f32[", item(g.x, 1), "]")}});
  }
  cases->push_back({"conv without bias",
                    "conv",
                    {{"to", Text("b=5/1, n=3/1, high=4/1, wide=4/1")}},
                    {"f32[b=5, k=4, s=6, t=5]", "f32[n=3, k=4, v=3, u=2]"}});
  cases->push_back({"conv_transpose without bias",
                    "conv_transpose",
                    {{"stride", two}, {"padding", one}},
                    {"f32[b=3, n=4, s=3, t=3]", "f32[n=4, k=5, v=3, u=3]"}});
}

void AddPools(std::vector<OpCase>* cases) {
  const Ints one{1}, two{2}, three{3};
  const std::string x = "f32[b=3, c=5, s=6, t=5]", y = "f32[b=3, c=5, s=3, t=3]";
  const Attributes padded = {{"kernel", three}, {"stride", two}, {"padding", one}};
  Attributes ceil = {{"kernel", Ints{2, 3}}, {"stride", Ints{3, 2}}, {"ceil", true}};
  const auto add = [&](const std::string& name, const char* op, const Attributes& attrs,
                       std::vector<std::string> inputs, std::vector<Fill> fills) {
    cases->push_back({name, op, attrs, std::move(inputs), std::move(fills)});
  };
  const Fill distinct = Fill::kDistinct;
  add("max_pool", "max_pool", {{"kernel", two}}, {"f32[b=2, c=3, s=5, t=6]"}, {distinct});
  add("max_pool with padding", "max_pool", padded, {"f32[b=2, c=4, s=6, t=5]"}, {distinct});
  add("max_pool rounded up", "max_pool", ceil, {"f32[b=2, c=3, s=6, t=6]"}, {distinct});
  add("max_pool over time", "max_pool", {{"kernel", three}, {"stride", one}, {"dilation", two}},
      {"f32[b=3, c=5, s=8]"}, {distinct});
  add("max_pool_grad", "max_pool_grad", padded, {x, y}, {Fill::kSteps, kN});
  add("average_pool", "average_pool", {{"kernel", two}}, {x}, {});
  add("average_pool with padding", "average_pool", padded, {x}, {});
  Attributes left_out = padded;
  left_out.Set("count_padding", false);
  add("average_pool without padding in the mean", "average_pool", left_out, {x}, {});
  Attributes all = ceil;
  all.Set("padding", one);
  add("average_pool rounded up", "average_pool", all, {"f32[b=3, c=5, s=6, t=6]"}, {});
  add("average_pool over three dimensions", "average_pool", {{"kernel", Ints{2, 1, 2}}},
      {"f32[b=3, c=5, s=4, t=2, u=3]"}, {});
  Attributes grad = padded;
  grad.Set("to", Text("b=3/1, c=5/1, s=6/1, t=5/1"));
  add("average_pool_grad", "average_pool_grad", grad, {y}, {});
}

void AddStatistics(std::vector<OpCase>* cases) {
  struct Form {
    const char* name;
    Ints axes;
    std::string x, rest;
  };
  const Fill positive = Fill::kPositive;
  for (const Form& form :
       {Form{"", {0, 2, 3}, "f32[b=5, c=4, s=3, t=2]", "f32[c=4]"},
        Form{" of the last axes", {2, 3}, "f32[b=3, g=4, r=2, s=5]", "f32[b=3, g=4]"},
        Form{" of the first axes", {0, 1}, "f32[b=5, s=2, c=6/2]", "f32[c=6/2]"}}) {
    const Attributes attrs = {{"axes", form.axes}};
    const auto add = [&](const char* op, const char* how, std::vector<std::string> inputs,
                         std::vector<Fill> fills) {
      cases->push_back(
          {absl::StrCat(op, how, form.name), op, attrs, std::move(inputs), std::move(fills)});
    };
    add("reduce_variance", "", {form.x, form.rest}, {});
    cases->push_back({absl::StrCat("reduce_variance alone", form.name),
                      "reduce_variance",
                      attrs,
                      {form.x, form.rest},
                      {},
                      1});
    add("reduce_variance_grad", "", {form.x, form.rest, form.rest}, {});
    add("normalize", "", {form.x, form.rest, form.rest, form.rest, form.rest}, {kN, kN, positive});
    add("normalize", " without factors", {form.x, form.rest, form.rest}, {kN, kN, positive});
    add("normalize_grad", "", {form.x, form.rest, form.rest, form.x, form.rest},
        {kN, kN, positive});
    add("normalize_grad", " without factors", {form.x, form.rest, form.rest, form.x},
        {kN, kN, positive});
  }
  const std::string statistic = "f32[g=4, c=7]";
  cases->push_back({"moving_average", "moving_average", {}, {statistic, statistic}});
  cases->push_back({"moving_average of a sample",
                    "moving_average",
                    {{"momentum", 0.25}},
                    {statistic, statistic, statistic}});
}

void AddMovement(std::vector<OpCase>* cases) {
  auto add = [&](const char* name, const char* op, Attributes attrs,
                 std::vector<std::string> inputs) {
    cases->push_back({name, op, std::move(attrs), std::move(inputs), {}, -1, {}, 0});
  };
  add("reshape into heads", "reshape", {{"to", Text("b=5, h=3/1, d=4")}}, {"f32[b=5, heads=12/4]"});
  add("reshape out of heads", "reshape", {{"to", Text("tokens=10/2, heads=12/4")}},
      {"f32[b=5, s=2, h=3, d=4]"});
  add("reshape without common factors", "reshape", {{"to", Text("b=5, c=8, d=3")}},
      {"f32[b=5, x=6, y=4]"});
  add("reshape with ones", "reshape", {{"to", Text("one=1, b=5, c=7, two=1")}},
      {"f32[b=5, one=1, c=7]"});
  add("reshape of a scalar", "reshape", {{"to", Text("one=1")}}, {"f32[]"});
  add("transpose", "transpose", {{"perm", Ints{1, 2, 0}}}, {"f32[a=5, b=4/2, c=7]"});
  add("slice", "slice", {{"axis", int64_t{1}}, {"begin", int64_t{2}}, {"size", int64_t{3}}},
      {"f32[a=5, b=7, c=2]"});
  add("slice of heads", "slice",
      {{"axis", int64_t{1}}, {"begin", int64_t{4}}, {"size", int64_t{4}}}, {"f32[a=5, h=12/4]"});
  add("pad", "pad",
      {{"axis", int64_t{1}}, {"begin", int64_t{2}}, {"size", int64_t{8}}, {"unit", int64_t{2}}},
      {"f32[a=5, b=3, c=2]"});
  add("concat", "concat", {{"axis", int64_t{1}}},
      {"f32[a=5, b=3, c=2]", "f32[a=5, b=4/2, c=2]", "f32[a=5, b=1, c=2]"});
  add("concat of one", "concat", {{"axis", int64_t{0}}}, {"f32[a=5, b=3]"});
  add("expand", "expand", {{"axes", Ints{0, 2}}, {"to", Text("a=5/1, b=3/1, c=4/2")}},
      {"f32[b=3]"});
  add("expand of a scalar", "expand", {{"to", Text("a=5/1, b=3/1")}}, {"f32[]"});
}

void AddExchanges(std::vector<OpCase>* cases) {
  auto add = [&](const char* op, Transfer transfer, std::vector<std::string> inputs) {
    OpCase& added = cases->emplace_back();
    added.name = added.op = op;
    added.inputs = std::move(inputs);
    added.tolerance = 0;
    added.transfer = std::move(transfer);
  };
  // Two pieces of two tensors, six elements: one chunk, full.
  add("exchange_pack", ExchangePack{6, {{0, 0, {{1}, {3}}}, {1, 2, {{0, 1}, {2, 3}}}}},
      {"f32[a=5]", "f32[a=2, b=3]"});
  const auto own = [](int64_t begin, int64_t end) {
    return ExchangeSource{ExchangeSource::kOwn, {{begin}, {end}}};
  };
  const ExchangeSource first{0, {}}, second{1, {}};
  add("exchange_fill",
      ExchangeFill{8,
                   1,
                   {{0, Combiner::kSum, {{0}, {2}}, {own(3, 5)}},
                    {0, Combiner::kSum, {{2}, {4}}, {own(0, 2), first}},
                    {0, Combiner::kMax, {{4}, {6}}, {first, second}}}},
      {"f32[a=5]", "f32[m=8]", "f32[m=8]"});
}

void AddReductions(std::vector<OpCase>* cases) {
  for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max"}) {
    cases->push_back({op, op, {{"axes", Ints{0, 2}}}, {"f32[a=5, b=3, c=4/2]"}});
    cases->push_back({absl::StrCat(op, " of all"), op, {}, {"f32[a=5, b=7]"}});
  }
  cases->push_back({"reduce_max_grad",
                    "reduce_max_grad",
                    {{"axes", Ints{1}}},
                    {"f32[a=5, b=7, c=2]", "f32[a=5, c=2]", "f32[a=5, c=2]"},
                    {Fill::kSteps, Fill::kSteps, kN}});
}

void AddLosses(std::vector<OpCase>* cases) {
  std::string row = "f32[b=4, s=3]", logits = "f32[b=4, s=3, v=5]", targets = "i32[b=4, s=3]";
  cases->push_back({"softmax_cross_entropy",
                    "softmax_cross_entropy",
                    {},
                    {logits, targets},
                    {kN, Fill::kClasses}});
  const Attributes smoothed = {{"ignore_index", Ints{-100}}, {"label_smoothing", 0.2}};
  cases->push_back({"softmax_cross_entropy smoothed",
                    "softmax_cross_entropy",
                    {{"label_smoothing", 0.2}},
                    {logits, targets},
                    {kN, Fill::kClasses}});
  cases->push_back({"softmax_cross_entropy of some",
                    "softmax_cross_entropy",
                    smoothed,
                    {logits, targets},
                    {kN, Fill::kMarked}});
  cases->push_back({"softmax_cross_entropy_grad of some",
                    "softmax_cross_entropy_grad",
                    smoothed,
                    {logits, targets, row, row, row},
                    {kN, Fill::kMarked, kN, Fill::kPositive, kN}});
  cases->push_back({"exp_sum_pick of some",
                    "exp_sum_pick",
                    smoothed,
                    {logits, targets, row},
                    {kN, Fill::kMarked, kN}});
  cases->push_back({"cross_entropy_finish of some",
                    "cross_entropy_finish",
                    {{"ignore_index", Ints{-100}}},
                    {row, row, row, targets},
                    {kN, Fill::kPositive, kN, Fill::kMarked}});
  cases->push_back({"accuracy of some",
                    "accuracy",
                    {{"ignore_index", Ints{2}}},
                    {logits, targets},
                    {kN, Fill::kClasses},
                    -1,
                    {},
                    0});
  cases->push_back({"softmax_cross_entropy_grad",
                    "softmax_cross_entropy_grad",
                    {},
                    {logits, targets, row, row, row},
                    {kN, Fill::kClasses, kN, Fill::kPositive, kN}});
  cases->push_back(
      {"exp_sum_pick", "exp_sum_pick", {}, {logits, targets, row}, {kN, Fill::kClasses, kN}});
  cases->push_back({"cross_entropy_finish",
                    "cross_entropy_finish",
                    {},
                    {row, row, row},
                    {kN, Fill::kPositive, kN}});
  cases->push_back(
      {"accuracy", "accuracy", {}, {logits, targets}, {kN, Fill::kClasses}, -1, {}, 0});
}

double Draw(Fill fill, uint64_t key, int64_t i) {
  double normal = NormalAt(key, i), uniform = UniformAt(key, i);
  switch (fill) {
    case Fill::kNormal: return normal;
    case Fill::kBetween: return std::floor(4 * normal) / 2 + 0.25;
    case Fill::kApart: return normal + (normal < 0 ? -0.1 : 0.1);
    case Fill::kPositive: return 0.5 + std::fabs(normal);
    case Fill::kSteps: return std::floor(uniform * 3) - 1;
    case Fill::kIds: return std::floor(uniform * 10) - 1;
    case Fill::kClasses: return std::floor(uniform * 5);
    case Fill::kMarked: return uniform < 0.3 ? -100 : std::floor((uniform - 0.3) / 0.7 * 5);
    case Fill::kMask: return uniform < 0.6 ? 1 : 0;
    case Fill::kPages: return std::floor(uniform * (kPagesOfRow + 1));  // kPagesOfRow: no page
    case Fill::kDistinct: return static_cast<double>((i * 89 + 17) % 251 - 125) * 0.05;
  }
  return 0;
}

HostTensor Filled(const sbp::TensorType& type, Fill fill, uint64_t key) {
  HostTensor tensor(type);
  int64_t num_without_page = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    double value = Draw(fill, key, i);
    if (fill == Fill::kPages) {
      const int64_t row = i / type.dims.back().size;
      // The data of a job are checked to be from 0 to below the number of pages. Kernels take more.
      const int64_t no_page[] = {0, -1, type.dims[0].size * kPagesOfRow};
      value = value < kPagesOfRow ? value + static_cast<double>(row * kPagesOfRow)
                                  : static_cast<double>(no_page[num_without_page++ % 3]);
    }
    tensor.Set(i, value);
  }
  return tensor;
}

}  // namespace

const std::vector<OpCase>& OpCases() {
  static const auto* cases = [] {
    auto* all = new std::vector<OpCase>();
    AddElementwise(all);
    AddMasks(all);
    AddMatmul(all);
    AddBatchedMatmul(all);
    AddEmbedding(all);
    AddIndexing(all);
    AddSelections(all);
    AddNorms(all);
    AddAttention(all);
    AddConvolutions(all);
    AddPools(all);
    AddStatistics(all);
    AddMovement(all);
    AddExchanges(all);
    AddReductions(all);
    AddLosses(all);
    AddUpdateCases(all);
    return all;
  }();
  return *cases;
}

absl::StatusOr<OpExample> MakeExample(const OpCase& op_case, uint64_t seed) {
  OpExample example;
  example.def = OpRegistry::Find(op_case.op);
  if (example.def == nullptr)
    return absl::NotFoundError(absl::StrCat("no op \"", op_case.op, "\""));
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(sbp::TensorType type, ParseType(op_case.inputs[i], {}));
    Fill fill = i < op_case.fills.size() ? op_case.fills[i] : Fill::kNormal;
    example.inputs.push_back(Filled(type, fill, MixKey(seed, i)));
    example.input_types.push_back(std::move(type));
  }
  example.attrs = op_case.attrs;
  int num_outputs = op_case.num_outputs < 0
                        ? std::max<int>(1, static_cast<int>(example.def->schema.outputs.size()))
                        : op_case.num_outputs;
  WEIR_RETURN_IF_ERROR(CheckSchema(example.def->schema, static_cast<int>(op_case.inputs.size()),
                                   num_outputs, &example.attrs, op_case.name));
  WEIR_ASSIGN_OR_RETURN(
      example.output_types,
      example.def->infer({example.attrs, example.input_types, {}, &op_case.transfer}));
  if (op_case.num_outputs >= 0) example.output_types.resize(op_case.num_outputs);
  for (size_t i = 0; i < example.output_types.size(); ++i) {
    if (i < op_case.initial.size()) {
      example.outputs.push_back(
          Filled(example.output_types[i], op_case.initial[i], MixKey(seed, 100 + i)));
    } else {
      example.outputs.emplace_back(example.output_types[i]);
    }
  }
  return example;
}

std::vector<bool> TakesGradient(const OpExample& example) {
  const bool averages = example.def->schema.name == "moving_average";
  std::vector<bool> takes;
  for (const sbp::TensorType& type : example.input_types)
    takes.push_back(IsReal(type.dtype) && !(averages && !takes.empty()));
  return takes;
}

}  // namespace weir::ops
