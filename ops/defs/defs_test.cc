#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "ops/defs/meant_ops.h"
#include "ops/defs/op_def.h"
#include "ops/defs/reference.h"
#include "ops/defs/type_text.h"
#include "runtime/base/random.h"

namespace weir::ops {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const DimTable& Table() {
  static const auto* table = new DimTable{{"batch", {"batch", 8, 1}},
                                          {"sequence", {"sequence", 16, 1}},
                                          {"hidden", {"hidden", 64, 1}},
                                          {"heads", {"heads", 64, 16}}};
  return *table;
}

sbp::TensorType Type(const std::string& text) {
  auto type = ParseType(text, Table());
  EXPECT_TRUE(type.ok()) << type.status();
  return type.ok() ? *type : sbp::TensorType{};
}

absl::StatusOr<std::vector<sbp::TensorType>> Infer(const std::string& op,
                                                   const std::vector<std::string>& inputs,
                                                   Attributes attrs = {}) {
  const OpDef* def = OpRegistry::Find(op);
  std::vector<sbp::TensorType> types;
  for (const std::string& text : inputs) types.push_back(Type(text));
  absl::Status schema = CheckSchema(def->schema, static_cast<int>(inputs.size()), 1, &attrs, "");
  if (!schema.ok()) return schema;
  return def->infer({attrs, types, Table()});
}

// Returns the types as text, or the message of the error.
std::string TypesText(const absl::StatusOr<std::vector<sbp::TensorType>>& types) {
  if (!types.ok()) return std::string(types.status().message());
  std::vector<std::string> texts;
  for (const sbp::TensorType& type : *types)
    texts.push_back(std::string(Name(type.dtype)) + "[" + DimsText(type.dims) + "]");
  return absl::StrJoin(texts, ", ");
}

std::string InferText(const std::string& op, const std::vector<std::string>& inputs,
                      Attributes attrs = {}) {
  return TypesText(Infer(op, inputs, std::move(attrs)));
}

// Returns "batch:8/1 heads:4/1+head_dim:16/1 | ..." with factors by name, whole factors in
// brackets.
std::string RuleText(const std::string& op, const std::vector<std::string>& inputs,
                     Attributes attrs = {}) {
  auto outputs = Infer(op, inputs, attrs);
  if (!outputs.ok()) return std::string(outputs.status().message());
  std::vector<sbp::TensorType> types;
  for (const std::string& text : inputs) types.push_back(Type(text));
  sbp::FactorRule rule = OpRegistry::Find(op)->rule(attrs, types, *outputs);
  auto operand = [&](const sbp::OperandRule& o) {
    std::vector<std::string> dims;
    for (const auto& dim : o.dims) {
      std::vector<std::string> factors;
      for (int f : dim) {
        const sbp::Factor& factor = rule.factors[f];
        std::string text =
            factor.name + ":" + std::to_string(factor.size) + "/" + std::to_string(factor.unit);
        factors.push_back(factor.whole ? "<" + text + ">" : text);
      }
      dims.push_back(absl::StrJoin(factors, "+"));
    }
    return absl::StrJoin(dims, " ");
  };
  std::vector<std::string> texts;
  for (const sbp::OperandRule& o : rule.inputs) texts.push_back(operand(o));
  for (const sbp::OperandRule& o : rule.outputs) texts.push_back("-> " + operand(o));
  return absl::StrJoin(texts, " | ");
}

TEST(TypeText, SizesAndUnitsComeFromTheTableUnlessWritten) {
  EXPECT_EQ(DimsText(Type("f32[batch, heads, other=6/3]").dims),
            "batch=8/1, heads=64/16, other=6/3");
  EXPECT_EQ(DimsText(Type(" bf16 [ heads = 4 / 1 ] ").dims), "heads=4/1");
  EXPECT_EQ(Type("f32[]").dims.size(), 0u);
  EXPECT_EQ(Type("i32").dtype, DType::kI32);
}

TEST(TypeText, AProductOfNamesHasTheirSizeAndIsCutAtTheFirst) {
  const DimTable table = {{"heads", {"heads", 6, 2}}, {"width", {"width", 8, 1}}};
  const auto dims = ParseDims("heads * width, width", table);
  ASSERT_TRUE(dims.ok()) << dims.status();
  EXPECT_EQ(dims->at(0), (sbp::TensorDim{"heads", 48, 16}));
  EXPECT_EQ(dims->at(1), (sbp::TensorDim{"width", 8, 1}));
  for (const char* text : {"heads*", "*heads", "heads**width", "heads*8"})
    EXPECT_THAT(std::string(ParseDims(text, table).status().message()), HasSubstr("W0311")) << text;
  EXPECT_THAT(std::string(ParseDims("heads*widht", table).status().message()),
              AllOf(HasSubstr("W0312"), HasSubstr("Try: width")));
  const DimTable large = {{"a", {"a", int64_t{1} << 40, 1}}};
  EXPECT_THAT(std::string(ParseDims("a*a", large).status().message()), HasSubstr("W0313"));
}

TEST(TypeText, WhatDimsTextWritesParseDimsReads) {
  std::vector<sbp::TensorDim> dims = {{"a", 12, 4}, {"b", 1, 1}};
  EXPECT_EQ(*ParseDims(DimsText(dims), {}), dims);
}

TEST(TypeText, ErrorsNameTheFlawAndTheNearestChoice) {
  auto message = [](const std::string& text) {
    return std::string(ParseType(text, Table()).status().message());
  };
  EXPECT_THAT(message("f32[batch, sequense]"),
              AllOf(HasSubstr("W0312"), HasSubstr("Try: sequence")));
  EXPECT_THAT(message("f23[batch]"), AllOf(HasSubstr("W0311"), HasSubstr("Try: f32[batch]")));
  EXPECT_THAT(message("f32[batch"), HasSubstr("\"]\""));
  EXPECT_THAT(message("f32(batch, hidden)"), HasSubstr("Try: f32[batch, hidden]."));
  EXPECT_THAT(message("F32 {batch, hidden}"), HasSubstr("Try: f32[batch, hidden]."));
  EXPECT_THAT(message("long(batch"), HasSubstr("Try: i32[batch]."));
  EXPECT_THAT(message("[batch]"), HasSubstr("Try: f32[batch]."));
  EXPECT_THAT(message("f32[batch,,hidden]"), HasSubstr("W0311"));
  EXPECT_THAT(message("f32[batch,]"), HasSubstr("W0311"));
  EXPECT_THAT(message("f32[x=]"), HasSubstr("W0311"));
  EXPECT_THAT(message("f32[x=4/]"), HasSubstr("W0311"));
  EXPECT_THAT(message("f32[x=-4]"), HasSubstr("W0311"));
  EXPECT_THAT(message("f32[x=0]"), HasSubstr("W0313"));
  EXPECT_THAT(message("f32[x=9999999999999999999999]"), HasSubstr("W0313"));
  EXPECT_THAT(message("f32[x=4611686018427387904, y=4]"), HasSubstr("W0313"));
  EXPECT_THAT(message("f32[heads=4]"), AllOf(HasSubstr("W0314"), HasSubstr("heads=4/1")));
}

TEST(TypeText, TheAdviceKeepsTheRange) {
  auto message = [](const std::string& text) {
    return std::string(ParseDeclaredType(text, Table()).status().message());
  };
  EXPECT_THAT(message("int64<500>[batch]"), HasSubstr("Try: i32<500>[batch]."));
  EXPECT_THAT(message("i23<500>(batch)"), HasSubstr("Try: i32<500>[batch]."));
  EXPECT_THAT(message("float32<500>[batch]"), HasSubstr("Try: f32[batch]."));
}

TEST(TypeText, AnElementTypeOfAnotherLibraryHasItsPlaceTaker) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> meant = {
      {"i32", {"int64", "int32", "i64", "long", "int", "u8", "torch.int64"}},
      {"f32", {"float32", "float", "double", "f64", "torch.float32"}},
      {"bf16", {"bfloat16"}},
      {"f16", {"half", "float16", "fp16"}},
      {"bool", {"boolean", "torch.bool"}}};
  for (const auto& [type, foreign] : meant) {
    for (const std::string& name : foreign) {
      EXPECT_THAT(std::string(ParseType(name + "[batch]", Table()).status().message()),
                  AllOf(HasSubstr("W0311"), HasSubstr("Try: " + type + "[batch].")))
          << name;
    }
  }
}

TEST(Schema, AnOpOfAnotherLibraryIsAnOpOfWeir) {
  std::vector<std::string> names = OpRegistry::Names();
  for (const auto& [foreign, ops] : ForeignOps()) {
    EXPECT_EQ(OpRegistry::Find(foreign), nullptr) << foreign;
    for (const std::string& op : ops) {
      const OpDef* def = OpRegistry::Find(op);
      ASSERT_NE(def, nullptr) << op;
      EXPECT_FALSE(def->schema.internal) << op;
    }
  }
  EXPECT_EQ(MeantOps("linear", names), "matmul");
  EXPECT_EQ(MeantOps("nn.LayerNorm", names), "layer_norm");
  EXPECT_EQ(MeantOps("ReLU", names), "relu");
  EXPECT_EQ(MeantOps("CrossEntropyLoss", names), "softmax_cross_entropy");
  EXPECT_EQ(MeantOps("F.scaled_dot_product_attention", names), "attention");
  EXPECT_EQ(MeantOps("mse_loss", names), "sub, square and reduce_mean");
  EXPECT_EQ(MeantOps("matmull", names), "matmul");
  EXPECT_EQ(MeantOps("_", names), "");
  EXPECT_EQ(MeantOps("torch.", names), "");
}

TEST(Schema, AnUnknownOpNamesTheOpsThatHaveTheWordForAPart) {
  const auto advice = [](const std::string& name) {
    return std::string(OpRegistry::FindForUser(name, "node x").status().message());
  };
  EXPECT_THAT(advice("mean"), ::testing::HasSubstr("Try: one of reduce_mean, step_mean."));
  EXPECT_THAT(advice("max"), ::testing::HasSubstr("Try: one of max_pool, reduce_max."));
  EXPECT_THAT(advice("norm"), ::testing::HasSubstr("Try: one of layer_norm, rms_norm."));
}

TEST(Schema, UnknownAttributeNamesTheNearest) {
  Attributes attrs = {{"activaton", std::string("relu")}};
  absl::Status status = CheckSchema(OpRegistry::Find("matmul")->schema, 2, 1, &attrs, "node q");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("W0304 at node q"), HasSubstr("Try: activation")));
}

TEST(Schema, DefaultsAreFilledInAndKindsChecked) {
  const OpSchema& schema = OpRegistry::Find("matmul")->schema;
  Attributes attrs;
  ASSERT_TRUE(CheckSchema(schema, 3, 2, &attrs, "").ok());
  EXPECT_EQ(attrs.Str("activation", "?"), "none");
  attrs.Set("transpose_w", int64_t{1});
  EXPECT_THAT(std::string(CheckSchema(schema, 2, 1, &attrs, "").message()), HasSubstr("W0306"));
  Attributes none;
  EXPECT_THAT(
      std::string(CheckSchema(OpRegistry::Find("scale")->schema, 1, 1, &none, "").message()),
      HasSubstr("W0305"));
}

TEST(Schema, OperandCountsSayWhatIsPossible) {
  const OpSchema& schema = OpRegistry::Find("matmul")->schema;
  Attributes attrs;
  EXPECT_THAT(std::string(CheckSchema(schema, 1, 1, &attrs, "").message()),
              AllOf(HasSubstr("W0302"), HasSubstr("2 to 3 inputs of matmul (x, w, bias?)")));
  EXPECT_THAT(std::string(CheckSchema(schema, 2, 3, &attrs, "").message()), HasSubstr("W0303"));
  EXPECT_THAT(
      std::string(CheckSchema(OpRegistry::Find("concat")->schema, 0, 1, &attrs, "").message()),
      HasSubstr("at least 1 input of concat (x...)"));
}

TEST(Registry, UsersGetTheNearestUserOp) {
  auto message = [](const std::string& op) {
    return std::string(OpRegistry::FindForUser(op, "node a").status().message());
  };
  EXPECT_THAT(message("matmull"), AllOf(HasSubstr("W0301 at node a"), HasSubstr("Try: matmul")));
  EXPECT_THAT(message("recurrence"), AllOf(HasSubstr("Try: one of "), HasSubstr("matmul, "),
                                           Not(HasSubstr("matmul_grad_w"))));
  EXPECT_THAT(message("relu_grad"), HasSubstr("that graphs may use"));
  EXPECT_THAT(message("subtract"), HasSubstr("Try: sub"));
  EXPECT_THAT(message(""), AllOf(HasSubstr("found none"), HasSubstr("Try: op: one of ")));
  EXPECT_TRUE(OpRegistry::FindForUser("gelu", "").ok());
}

TEST(Infer, MatmulTakesLeadingDimensionsFromXAndTheLastFromTheWeight) {
  EXPECT_EQ(
      InferText("matmul", {"f32[batch, sequence, hidden]", "f32[embed=64, heads]", "f32[n=64]"}),
      "f32[batch=8/1, sequence=16/1, heads=64/16], f32[batch=8/1, sequence=16/1, heads=64/16]");
  EXPECT_EQ(
      InferText("matmul", {"f32[batch, hidden]", "f32[heads, hidden]"}, {{"transpose_w", true}}),
      "f32[batch=8/1, heads=64/16], f32[batch=8/1, heads=64/16]");
}

TEST(Infer, ErrorsNameTheOperandAndBothShapes) {
  EXPECT_THAT(InferText("matmul", {"f32[batch, hidden]", "f32[mlp=256, hidden]"}),
              AllOf(HasSubstr("W0308"), HasSubstr("dimension mlp of w"),
                    HasSubstr("x f32[batch=8, hidden=64]"), HasSubstr("w f32[mlp=256, hidden=64]"),
                    HasSubstr("Try: swap mlp and hidden of w")));
  EXPECT_THAT(InferText("matmul", {"f32[batch, hidden]", "f32[mlp=256, batch]"}),
              HasSubstr("Try: mlp=64"));
  EXPECT_THAT(InferText("matmul", {"f32[batch, hidden]", "bf16[hidden, hidden]"}),
              HasSubstr("W0309"));
  EXPECT_THAT(InferText("matmul", {"f32[batch, hidden]", "f32[hidden]"}), HasSubstr("W0307"));
  EXPECT_THAT(InferText("matmul", {"f32[batch, hidden]", "f32[hidden, hidden]"},
                        {{"activation", std::string("geelu")}}),
              AllOf(HasSubstr("W0310"), HasSubstr("Try: activation: \"gelu\"")));
  EXPECT_THAT(InferText("matmul", {"f32[batch, hidden]", "f32[hidden, hidden]"},
                        {{"activation", std::string("ReLU")}}),
              HasSubstr("Try: activation: \"relu\""));
  EXPECT_THAT(InferText("matmul", {"f32[batch, hidden]", "f32[hidden, hidden]"},
                        {{"activation", std::string("tanh")}}),
              AllOf(HasSubstr("W0310"), HasSubstr("one of none, relu, gelu, gelu_exact, silu"),
                    Not(HasSubstr("Try"))));
  EXPECT_THAT(InferText("matmul", {"f32[]", "f32[hidden, hidden]"}),
              HasSubstr("at least 1 dimension in x"));
  EXPECT_THAT(InferText("relu", {"i32[batch]"}), HasSubstr("W0309"));
  EXPECT_THAT(InferText("embedding", {"f32[v=10, hidden]", "f32[batch]"}),
              HasSubstr("i32 elements in ids"));
  EXPECT_THAT(InferText("add", {"f32[batch, sequence]", "f32[batch]"}),
              AllOf(HasSubstr("W0308"), HasSubstr("Try: f32[sequence=16]")));
  EXPECT_THAT(InferText("add", {"f32[batch]", "f32[other=8]"}), HasSubstr("names and sizes"));
  EXPECT_THAT(InferText("add", {"f32[batch]", "f32[sequence, hidden]"}), HasSubstr("W0308"));
  EXPECT_THAT(InferText("reshape", {"f32[batch, hidden]"}, {{"to", std::string("batch, n=4/1")}}),
              AllOf(HasSubstr("W0308"), HasSubstr("512")));
  EXPECT_THAT(
      InferText("transpose", {"f32[batch, hidden]"}, {{"perm", std::vector<int64_t>{0, 0}}}),
      HasSubstr("such as [1, 0]"));
  EXPECT_THAT(InferText("slice", {"f32[batch]"},
                        {{"axis", int64_t{-1}}, {"begin", int64_t{0}}, {"size", int64_t{2}}}),
              HasSubstr("Try: axis: 0"));
  EXPECT_THAT(InferText("slice", {"f32[batch]"},
                        {{"axis", int64_t{0}}, {"begin", int64_t{6}}, {"size", int64_t{3}}}),
              HasSubstr("Try: size: 2"));
  EXPECT_THAT(InferText("slice", {"f32[batch]"},
                        {{"axis", int64_t{0}}, {"begin", int64_t{6}}, {"size", INT64_MAX}}),
              HasSubstr("W0310"));
  EXPECT_THAT(
      InferText("concat", {"f32[batch, hidden]", "f32[sequence, hidden]"}, {{"axis", int64_t{1}}}),
      HasSubstr("W0308"));
  EXPECT_THAT(InferText("reduce_sum", {"f32[batch]"}, {{"axes", std::vector<int64_t>{1}}}),
              HasSubstr("W0310"));
  EXPECT_THAT(InferText("dropout", {"f32[batch]"}, {{"rate", 10.0}}), HasSubstr("Try: rate: 0.1"));
  EXPECT_THAT(InferText("cast", {"f32[batch]"}, {{"to", std::string("fp16")}}), HasSubstr("W0310"));
  EXPECT_THAT(InferText("rotary", {"f32[batch, sequence, h=4, d=5]"}), HasSubstr("even"));
  EXPECT_THAT(
      InferText("attention", {"f32[batch, sequence, h=6, d=4]", "f32[batch, sequence, g=4, d=4]",
                              "f32[batch, sequence, g=4, d=4]"}),
      HasSubstr("multiple of the heads of k (g=4)"));
  EXPECT_THAT(InferText("softmax_cross_entropy", {"f32[batch, v=10]", "i32[sequence]"}),
              HasSubstr("W0308"));
}

TEST(Infer, ImpossibleNumbersOfALossScaleAreRefused) {
  // The ops have two outputs, so the helper for ops with one does not serve.
  const auto found = [](const std::string& op, Attributes attrs) {
    const std::vector<sbp::TensorType> types = {Type("f32[]")};
    return TypesText(OpRegistry::Find(op)->infer({attrs, types, Table()}));
  };
  EXPECT_EQ(found("adapt_loss_scale", {}), "f32[], f32[]");
  EXPECT_THAT(found("adapt_loss_scale", {{"growth", 0.5}}),
              AllOf(HasSubstr("W0310"), HasSubstr("Try: growth: 2")));
  for (const double backoff : {0.0, 1.0}) {
    EXPECT_THAT(found("adapt_loss_scale", {{"backoff", backoff}}),
                AllOf(HasSubstr("W0310"), HasSubstr("Try: backoff: 0.5")));
  }
  EXPECT_THAT(found("adapt_loss_scale", {{"growth_interval", int64_t{0}}}),
              AllOf(HasSubstr("W0310"), HasSubstr("Try: growth_interval: 2000")));
  EXPECT_THAT(found("clip_scale", {{"loss_scale", 0.0}}),
              AllOf(HasSubstr("W0310"), HasSubstr("Try: loss_scale: 1")));
}

TEST(Infer, ImpossibleCallsOfCachedAttentionAreRefused) {
  // The op has three outputs, so the helper for ops with one does not serve.
  const auto cached = [](const std::string& k, int64_t pages, int64_t window,
                         int64_t page_size = 16) {
    const std::vector<sbp::TensorType> types = {Type("f32[batch, s=2, h=6, d=4]"), Type(k), Type(k),
                                                Type("i32[batch, s=2]"), Type("i32[batch, n=7]")};
    const Attributes attrs = {{"pages", pages}, {"page_size", page_size}, {"window", window}};
    return TypesText(OpRegistry::Find("attention_cached")->infer({attrs, types, Table()}));
  };
  const std::string k = "f32[batch, s=2, g=3, d=4]";
  EXPECT_THAT(cached(k, 5, 0), HasSubstr("f32[pages=40/5, page_size=16/1, g=3/1, d=4/1]"));
  EXPECT_THAT(cached("f32[batch, s=2, g=4, d=4]", 5, 0), HasSubstr("multiple of the heads of k"));
  EXPECT_THAT(cached("f32[batch, s=3, g=3, d=4]", 5, 0), HasSubstr("W0308"));
  EXPECT_THAT(cached(k, 0, 0), HasSubstr("pages from 1"));
  EXPECT_THAT(cached(k, INT32_MAX, 0), HasSubstr("fewer than 2^31 pages"));
  EXPECT_THAT(cached(k, 5, -1), HasSubstr("window of 0 or more"));
  EXPECT_THAT(cached(k, 5, 0, INT32_MAX / 7), HasSubstr("pages=40/5"));
  EXPECT_THAT(cached(k, 5, 0, INT32_MAX / 7 + 1), HasSubstr("fewer than 2^31 positions"));
  EXPECT_THAT(InferText("rotary", {"f32[batch, s=2, h=4, d=6]", "i32[batch, s=3]"}),
              HasSubstr("W0308"));
}

TEST(Infer, WindowsGiveTheSizesThatFollowFromThem) {
  using Ints = std::vector<int64_t>;
  const std::string x = "f32[batch, c=6, h=9, w=8/2]", weight = "f32[n=4, c=6, v=3, u=3]";
  EXPECT_EQ(InferText("conv", {x, weight}, {{"stride", Ints{2}}, {"padding", Ints{1, 1}}}),
            "f32[batch=8/1, n=4/1, h=5/1, w=4/1]");
  EXPECT_EQ(InferText("conv", {x, weight}, {{"to", std::string("batch, n=4, high=7, wide=6")}}),
            "f32[batch=8/1, n=4/1, high=7/1, wide=6/1]");
  EXPECT_EQ(InferText("conv_transpose", {"f32[batch, n=4, h=5, w=4]", weight},
                      {{"stride", Ints{2}}, {"padding", Ints{1}}, {"output_padding", Ints{0, 1}}}),
            "f32[batch=8/1, c=6/1, h=9/1, w=8/1]");
  EXPECT_EQ(InferText("max_pool", {x}, {{"kernel", Ints{2}}, {"ceil", true}}),
            "f32[batch=8/1, c=6/1, h=5/1, w=4/1]");
  EXPECT_EQ(InferText("average_pool", {"f32[batch, c=6, h=9]"}, {{"kernel", Ints{2}}}),
            "f32[batch=8/1, c=6/1, h=4/1]");
}

TEST(Infer, WindowsThatDoNotFitAreRefused) {
  using Ints = std::vector<int64_t>;
  const std::string x = "f32[batch, c=6, h=5, w=4]", weight = "f32[n=4, c=6, v=3, u=3]";
  EXPECT_THAT(InferText("conv", {"f32[batch, c=6]", weight}), HasSubstr("W0307"));
  EXPECT_THAT(InferText("conv", {x, "f32[n=4, c=5, v=3, u=3]"}),
              AllOf(HasSubstr("W0308"), HasSubstr("c=5")));
  EXPECT_THAT(InferText("conv", {x, weight}, {{"stride", Ints{1, 1, 1}}}),
              AllOf(HasSubstr("W0310"), HasSubstr("2, one for each")));
  EXPECT_THAT(InferText("conv", {x, weight}, {{"stride", Ints{0}}}), HasSubstr("1 or more"));
  EXPECT_THAT(InferText("conv", {x, weight}, {{"dilation", Ints{2}}}),
              AllOf(HasSubstr("dimension w of 4"), HasSubstr("over 5 elements")));
  EXPECT_THAT(InferText("conv", {x, weight}, {{"groups", int64_t{3}}}),
              AllOf(HasSubstr("W0310"), HasSubstr("groups")));
  EXPECT_THAT(InferText("conv", {x, weight}, {{"groups", int64_t{2}}}), HasSubstr("W0308"));
  EXPECT_THAT(InferText("conv", {x, weight}, {{"to", std::string("batch, n=4, h=5, w=4")}}),
              AllOf(HasSubstr("W0310"), HasSubstr("h=3/1, w=2/1")));
  EXPECT_THAT(InferText("conv_transpose", {"f32[batch, n=4, h=5, w=4]", weight},
                        {{"output_padding", Ints{1}}}),
              HasSubstr("below the stride"));
  EXPECT_THAT(InferText("max_pool", {x}, {{"kernel", Ints{2}}, {"padding", Ints{2}}}),
              HasSubstr("half the kernel"));
  EXPECT_THAT(InferText("max_pool", {x}, {{"kernel", Ints{}}}), HasSubstr("kernel: 2"));
  EXPECT_THAT(InferText("normalize", {x, "f32[c=6]", "f32[c=5]"}, {{"axes", Ints{0, 2, 3}}}),
              AllOf(HasSubstr("W0308"), HasSubstr("f32[c=6]")));
  EXPECT_THAT(InferText("reduce_variance", {x, "f32[c=6]"}, {{"axes", Ints{0, 4}}}),
              HasSubstr("W0310"));
}

TEST(Infer, AResultTooLargeToCountIsRefusedForAnyOp) {
  EXPECT_THAT(InferText("matmul", {"f32[a=2147483648, k=1]", "f32[k=1, b=2147483648]"}),
              HasSubstr("W0313"));
  EXPECT_THAT(InferText("embedding", {"f32[v=1, h=2147483648]", "i32[b=2147483648]"}),
              HasSubstr("W0313"));
}

// Returns the types of an exchange op as text, or the message of the error.
std::string InferText(const std::string& op, const std::vector<std::string>& inputs,
                      const Transfer& transfer) {
  std::vector<sbp::TensorType> types;
  for (const std::string& text : inputs) types.push_back(Type(text));
  return TypesText(OpRegistry::Find(op)->infer({{}, types, Table(), &transfer}));
}

TEST(Infer, MalformedExchangesAreRefused) {
  auto pack = [](int tensor, Rect rect) {
    return InferText("exchange_pack", {"f32[a=4]"}, ExchangePack{8, {{tensor, 0, rect}}});
  };
  EXPECT_EQ(pack(0, {{1}, {4}}), "f32[message=8/1]");
  EXPECT_THAT(pack(1, {{1}, {4}}), HasSubstr("W0310"));
  EXPECT_THAT(pack(0, {{1}, {5}}), HasSubstr("a piece inside input 0 [4]"));
  EXPECT_THAT(pack(0, {{1}, {}}), HasSubstr("a piece that is a rectangle"));
  auto fill = [](int tensor, std::vector<ExchangeSource> sources) {
    return InferText("exchange_fill", {"f32[a=4]", "f32[m=8]"},
                     ExchangeFill{8,
                                  1,
                                  {{0, Combiner::kSum, {{0}, {2}}, std::move(sources)},
                                   {tensor, Combiner::kSum, {{2}, {6}}, {{0, {}}}}}});
  };
  const ExchangeSource own{ExchangeSource::kOwn, {{1}, {3}}};
  EXPECT_EQ(fill(0, {own, {0, {}}}), "f32[dim0=6/1]");
  EXPECT_THAT(fill(0, {{1, {}}}), HasSubstr("W0310"));
  EXPECT_THAT(fill(INT32_MAX, {own}), HasSubstr("W0310"));
  EXPECT_THAT(InferText("exchange_fill", {"f32[a=4]"}, ExchangePack{8, {}}), HasSubstr("W0310"));
}

TEST(Rule, MatmulNamesContractionAndResultAfterTheWeight) {
  EXPECT_EQ(RuleText("matmul", {"f32[batch, hidden]", "f32[embed=64, heads]", "f32[n=64]"}),
            "batch:8/1 embed:64/1 | embed:64/1 heads:64/16 | heads:64/16 | -> batch:8/1 "
            "heads:64/16 | -> batch:8/1 heads:64/16");
  EXPECT_EQ(RuleText("matmul", {"f32[batch, hidden]", "f32[heads, hidden]"},
                     {{"transpose_w", true}, {"activation", std::string("gelu")}}),
            "batch:8/1 <hidden:64/1> | heads:64/16 <hidden:64/1> | -> batch:8/1 heads:64/16 | -> "
            "batch:8/1 heads:64/16");
}

TEST(Rule, ConvolutionsSplitTheBatchAndTheChannels) {
  const std::string x = "f32[batch, c=6, h=5]";
  EXPECT_EQ(RuleText("conv", {x, "f32[n=4, c=6, v=3]"}),
            "batch:8/1 c:6/1 <h:5/1> | n:4/1 c:6/1 <v:3/1> | -> batch:8/1 n:4/1 <h:3/1>");
  EXPECT_EQ(RuleText("conv", {x, "f32[n=4, c=6, v=1]"}),
            "batch:8/1 c:6/1 h:5/1 | n:4/1 c:6/1 <v:1/1> | -> batch:8/1 n:4/1 h:5/1");
  EXPECT_EQ(RuleText("conv", {x, "f32[n=6, one=1, v=1]"}, {{"groups", int64_t{6}}}),
            "batch:8/1 n:6/1 h:5/1 | n:6/1  <v:1/1> | -> batch:8/1 n:6/1 h:5/1");
}

TEST(Rule, ReshapeFindsTheCommonFactorsAndRespectsUnits) {
  EXPECT_EQ(RuleText("reshape", {"f32[batch, sequence, heads]"},
                     {{"to", std::string("batch, sequence, heads=4/1, head_dim=16")}}),
            "batch:8/1 sequence:16/1 heads:4/1+head_dim:16/1 | -> batch:8/1 sequence:16/1 "
            "heads:4/1 head_dim:16/1");
  EXPECT_EQ(RuleText("reshape", {"f32[batch, sequence, heads=4/1, head_dim=16]"},
                     {{"to", std::string("tokens=128, heads")}}),
            "batch:8/1 sequence:16/1 heads:4/1 head_dim:16/1 | -> batch:8/1+sequence:16/1 "
            "heads:4/1+head_dim:16/1");
  EXPECT_EQ(RuleText("reshape", {"f32[a=64/32]"}, {{"to", std::string("h=4, d=16")}}),
            "h:4/2+d:16/1 | -> h:4/2 d:16/1");
}

TEST(Rule, ReshapeOfShapesWithoutCommonFactorsIsWhole) {
  EXPECT_EQ(RuleText("reshape", {"f32[batch, a=6, b=4]"}, {{"to", std::string("batch, c=8, d=3")}}),
            "batch:8/1 <a:6/1> <b:4/1> | -> batch:8/1 <c:8/1> <d:3/1>");
  EXPECT_EQ(
      RuleText("reshape", {"f32[batch=1, a=6]"}, {{"to", std::string("batch=1, one=1, c=2, d=3")}}),
      "batch:1/1 c:2/1+d:3/1 | -> batch:1/1  c:2/1 d:3/1");
  EXPECT_EQ(RuleText("reshape", {"f32[a=4, b=6]"}, {{"to", std::string("c=2, d=12")}}),
            "c:2/1+d:2/1 b:6/1 | -> c:2/1 d:2/1+b:6/1");
}

// Row-major order is kept exactly if both shapes list the same factors in the same order.
TEST(Rule, ReshapeListsTheSameFactorsInTheSameOrderOnBothSides) {
  uint64_t draw = 0;
  auto next = [&](int64_t n) { return static_cast<int64_t>(RandomBits(5, draw++)[0] % n); };
  // Cuts a list of primes into dimensions at random.
  auto shape = [&](const std::vector<int64_t>& primes, const std::string& letter) {
    std::vector<sbp::TensorDim> dims = {{letter + "0", 1, 1}};
    for (int64_t prime : primes) {
      if (next(2) == 0) dims.push_back({letter + std::to_string(dims.size()), 1, 1});
      dims.back().size *= prime;
    }
    return dims;
  };
  int num_split = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<int64_t> primes;
    for (int64_t i = 0; i < 1 + next(6); ++i)
      primes.push_back(std::vector<int64_t>{2, 2, 3, 5}[next(4)]);
    sbp::TensorType x{DType::kF32, shape(primes, "x")};
    Attributes attrs = {{"to", DimsText(shape(primes, "y"))}};
    auto y = OpRegistry::Find("reshape")->infer({attrs, {x}, {}});
    ASSERT_TRUE(y.ok()) << y.status();
    sbp::FactorRule rule = OpRegistry::Find("reshape")->rule(attrs, {x}, *y);
    auto flat = [&](const sbp::OperandRule& operand, const std::vector<sbp::TensorDim>& dims) {
      std::vector<int> factors;
      for (size_t d = 0; d < dims.size(); ++d) {
        int64_t product = 1;
        for (int f : operand.dims[d]) {
          product *= rule.factors[f].size;
          factors.push_back(f);
        }
        EXPECT_EQ(product, dims[d].size);
      }
      return factors;
    };
    // Both cut the same list of primes, so there is always a common refinement.
    std::vector<int> in = flat(rule.inputs[0], x.dims);
    EXPECT_EQ(in, flat(rule.outputs[0], (*y)[0].dims)) << ToText(x) << " to " << ToText((*y)[0]);
    for (const sbp::Factor& factor : rule.factors) EXPECT_FALSE(factor.whole);
    num_split += in.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(num_split, 200);
}

TEST(Indexing, ResultsHaveThePlacesInTheMiddle) {
  const Attributes second = {{"axis", int64_t{1}}};
  EXPECT_EQ(InferText("take", {"f32[batch, heads, hidden]", "i32[i=3, j=5]"}, second),
            "f32[batch=8/1, i=3/1, j=5/1, hidden=64/1]");
  EXPECT_EQ(InferText("gather", {"f32[batch, heads]", "i32[b=8, i=3]"}, second),
            "f32[batch=8/1, i=3/1]");
  EXPECT_EQ(InferText("segment_sum", {"f32[batch, i=3, j=5]", "i32[i=3, j=5]"},
                      {{"axis", int64_t{1}}, {"to", std::string("batch, s=9")}}),
            "f32[batch=8/1, s=9/1]");
  EXPECT_EQ(InferText("top_k", {"f32[batch, heads]"}, {{"axis", int64_t{1}}, {"k", int64_t{2}}}),
            "f32[batch=8/1, heads=2/1], i32[batch=8/1, heads=2/1]");
}

TEST(Indexing, ErrorsSayWhatFits) {
  const Attributes first = {{"axis", int64_t{0}}};
  EXPECT_THAT(InferText("take", {"f32[batch, hidden]", "f32[i=3]"}, first), HasSubstr("W0309"));
  EXPECT_THAT(InferText("take", {"f32[batch]", "i32[i=3]"}, {{"axis", int64_t{1}}}),
              HasSubstr("W0310"));
  EXPECT_THAT(InferText("gather", {"f32[batch, hidden]", "i32[i=3]"}, first), HasSubstr("W0307"));
  EXPECT_THAT(InferText("gather", {"f32[batch, hidden]", "i32[i=3, hidden=63]"}, first),
              HasSubstr("W0308"));
  const auto sums = [](int64_t axis, const char* to) {
    return Attributes{{"axis", axis}, {"to", std::string(to)}};
  };
  EXPECT_THAT(InferText("segment_sum", {"f32[i=3, hidden]", "i32[i=4]"}, sums(0, "s=2, hidden")),
              HasSubstr("W0308"));
  EXPECT_THAT(InferText("segment_sum", {"f32[i=3]", "i32[i=3]"}, sums(1, "s=2")),
              AllOf(HasSubstr("W0310"), HasSubstr("axis from 0 to 0")));
  EXPECT_THAT(InferText("segment_sum", {"f32[i=3, hidden]", "i32[i=3]"}, sums(0, "hidden")),
              AllOf(HasSubstr("W0310"), HasSubstr("dimension 0 may have any size")));
  EXPECT_THAT(InferText("scatter_add", {"f32[batch, i=3]", "i32[batch, i=3]"}, sums(1, "v=7, s=9")),
              HasSubstr("W0310"));
  EXPECT_THAT(InferText("one_hot", {"i32[batch]"}, {{"to", std::string("batch")}}),
              AllOf(HasSubstr("W0310"), HasSubstr("Try: batch=8/1, classes=10")));
  EXPECT_THAT(InferText("top_k", {"f32[batch]"}, {{"axis", int64_t{0}}, {"k", int64_t{9}}}),
              AllOf(HasSubstr("k from 1 to 8"), HasSubstr("Try: k: 8")));
  EXPECT_THAT(InferText("argmax", {"i32[batch]"}, first), HasSubstr("W0309"));
  EXPECT_THAT(InferText("cumsum", {"f32[batch]"}, {{"axis", int64_t{-1}}}),
              HasSubstr("Try: axis: 0"));
}

TEST(Rule, GroupedAttentionSplitsQueryHeadsByKeyHeads) {
  EXPECT_EQ(RuleText("attention",
                     {"f32[batch, sequence, heads=6/3, d=4]", "f32[batch, sequence, g=2/1, d=4]",
                      "f32[batch, sequence, g=2/1, d=4]"}),
            "batch:8/1 <sequence:16/1> heads:2/1+<heads.per_group:3/1> <d:4/1> | batch:8/1 "
            "<sequence:16/1> heads:2/1 <d:4/1> | "
            "batch:8/1 <sequence:16/1> heads:2/1 <d:4/1> | -> batch:8/1 <sequence:16/1> "
            "heads:2/1+<heads.per_group:3/1> <d:4/1> | "
            "-> batch:8/1 heads:2/1+<heads.per_group:3/1> <sequence:16/1>");
}

TEST(Reference, DescribesOperandsAttributesFactorsAndGradient) {
  std::string text = DescribeOp(*OpRegistry::Find("layer_norm"));
  EXPECT_THAT(text, HasSubstr("layer_norm(x, gamma, beta?) -> y, mean?, rstd?\n"));
  EXPECT_THAT(text, HasSubstr("  gamma  [h]\n"));
  EXPECT_THAT(text, HasSubstr("epsilon: real = 1e-05  added to the variance\n"));
  EXPECT_THAT(text, HasSubstr("factors  ... h, h, h -> ... h, ..., ...; h is whole\n"));
  EXPECT_THAT(text, HasSubstr("gradient\n  yes\n"));
  EXPECT_THAT(DescribeOp(*OpRegistry::Find("accuracy")), HasSubstr("gradient\n  none\n"));
  EXPECT_THAT(DescribeOp(*OpRegistry::Find("scale")), HasSubstr("factor: real (required)"));
}

TEST(Reference, ListsUserOpsOnly) {
  EXPECT_THAT(ListUserOps(),
              AllOf(HasSubstr("matmul "), ::testing::Not(HasSubstr("matmul_grad_w"))));
}

}  // namespace
}  // namespace weir::ops
