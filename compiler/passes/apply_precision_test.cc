#include "compiler/passes/pass_testing.h"
#include "compiler/passes/passes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

PassContext Bf16() {
  PassContext context = ContextOf("");
  context.precision = DType::kBF16;
  return context;
}

DType TypeIn(const Function& function, const std::string& name) {
  return function.values[Find(function, name)].type.dtype;
}

// data -> first -> inner.0 -> inner.1 -> last, where only `first` reads data.
Module Chain() {
  FunctionMaker first("first"), inner("inner"), last("last");
  const ops::ValueId x = first.Input("x", "f32[batch, wide]");
  first.Return(first.Node("r", "relu", {x}));
  const ops::ValueId a = inner.Input("a", "f32[batch, wide]");
  const ops::ValueId w = inner.Parameter("w", "f32[wide, wide]");
  inner.Return(inner.Node("b", "matmul", {a, w}));
  const ops::ValueId z = last.Input("z", "f32[batch, wide]");
  last.Return(last.Node("loss", "reduce_mean", {z}));
  ModelMaker maker;
  const int data = maker.Data("data", "f32[batch, wide]");
  const int f = maker.Add(first.function), i = maker.Add(inner.function),
            l = maker.Add(last.function);
  const int made = maker.Call("first", f, {data})[0];
  const int one = maker.Call("inner.0", i, {made})[0];
  const int two = maker.Call("inner.1", i, {one})[0];
  maker.module.model.loss = maker.Call("last", l, {two})[0];
  return std::move(maker.module);
}

TEST(ApplyPrecision, WithF32NothingChanges) {
  Module module = SmallClassifier();
  const std::string before = EverythingOf(module, sbp::Mesh());
  Apply(ApplyPrecision, ContextOf(""), &module);
  EXPECT_EQ(EverythingOf(module, sbp::Mesh()), before);
}

TEST(ApplyPrecision, ParametersAndActivationsBetweenFunctionsAreNarrow) {
  Module module = Chain();
  Apply(ApplyPrecision, Bf16(), &module);
  const Function& inner = module.functions[1];
  for (const char* name : {"a", "w", "b"}) EXPECT_EQ(TypeIn(inner, name), DType::kBF16) << name;
  EXPECT_THAT(NodeLines(inner), ElementsAre("b = matmul(a, w)"));
}

TEST(ApplyPrecision, DataArrivesWideAndIsCastWhereItEnters) {
  Module module = Chain();
  Apply(ApplyPrecision, Bf16(), &module);
  const Function& first = module.functions[0];
  EXPECT_EQ(TypeIn(first, "x"), DType::kF32);
  EXPECT_EQ(TypeIn(first, "r"), DType::kBF16);
  EXPECT_THAT(NodeLines(first), ElementsAre("x.bf16 = cast(x)", "r = relu(x.bf16)"));
}

TEST(ApplyPrecision, F16IsNarrowAsBf16Is) {
  Module module = Chain();
  PassContext context = ContextOf("");
  context.precision = DType::kF16;
  Apply(ApplyPrecision, context, &module);
  for (const char* name : {"a", "w", "b"})
    EXPECT_EQ(TypeIn(module.functions[1], name), DType::kF16) << name;
  EXPECT_THAT(NodeLines(module.functions[0]), ElementsAre("x.f16 = cast(x)", "r = relu(x.f16)"));
  const Function& last = module.functions[2];
  EXPECT_EQ(last.values[last.results[0].value].type.dtype, DType::kF32) << "losses are f32";
}

Attributes To(const char* type) {
  Attributes attrs;
  attrs.Set("to", std::string(type));
  return attrs;
}

// bf16 makes 256 of 257.
TEST(ApplyPrecision, DataAndWeightsThatBecomeIntegersStayExact) {
  FunctionMaker first("first");
  const ops::ValueId x = first.Input("x", "f32[batch, wide]");
  const ops::ValueId w = first.Parameter("w", "f32[batch, wide]");
  const ops::ValueId direct = first.Node("direct", "cast", {x}, To("i32"));
  const ops::ValueId moved = first.Node("moved", "concat", {w, x}, [] {
    Attributes attrs;
    attrs.Set("axis", int64_t{1});
    return attrs;
  }());
  const ops::ValueId integers = first.Node("integers", "cast", {moved}, To("i32"));
  const ops::ValueId real = first.Node("real", "relu", {x});
  for (const ops::ValueId value : {direct, integers, real}) first.Return(value);
  ModelMaker maker;
  const int data = maker.Data("data", "f32[batch, wide]");
  maker.Call("first", maker.Add(first.function), {data});
  Apply(ApplyPrecision, Bf16(), &maker.module);
  const Function& function = maker.module.functions[0];
  for (const char* name : {"x", "w", "moved"}) EXPECT_EQ(TypeIn(function, name), DType::kF32);
  EXPECT_EQ(TypeIn(function, "real"), DType::kBF16);
  EXPECT_THAT(NodeLines(function),
              ElementsAre("x.bf16 = cast(x)", "direct = cast(x)", "moved = concat(w, x)",
                          "integers = cast(moved)", "real = relu(x.bf16)"));
}

TEST(ApplyPrecision, AResultThatAnotherCallMakesIntegersOfStaysExact) {
  FunctionMaker first("first"), last("last");
  const ops::ValueId x = first.Input("x", "f32[batch, wide]");
  Attributes order;
  order.Set("perm", std::vector<int64_t>{1, 0});
  first.Return(first.Node("t", "transpose", {x}, order));
  const ops::ValueId z = last.Input("z", "f32[wide, batch]");
  last.Return(last.Node("integers", "cast", {z}, To("i32")));
  ModelMaker maker;
  const int data = maker.Data("data", "f32[batch, wide]");
  const int f = maker.Add(first.function), l = maker.Add(last.function);
  maker.Call("last", l, {maker.Call("first", f, {data})[0]});
  Apply(ApplyPrecision, Bf16(), &maker.module);
  EXPECT_EQ(TypeIn(maker.module.functions[0], "t"), DType::kF32);
  EXPECT_THAT(NodeLines(maker.module.functions[0]), ElementsAre("t = transpose(x)"));
  EXPECT_THAT(NodeLines(maker.module.functions[1]), ElementsAre("integers = cast(z)"));
}

TEST(ApplyPrecision, ScalarsAreReportedWide) {
  Module module = Chain();
  Apply(ApplyPrecision, Bf16(), &module);
  const Function& last = module.functions[2];
  EXPECT_THAT(NodeLines(last), ElementsAre("loss = reduce_mean(z)"));
  EXPECT_EQ(TypeIn(last, "loss"), DType::kF32);
}

TEST(ApplyPrecision, AScalarThatASumDoesNotMakeIsCast) {
  FunctionMaker last("last");
  const ops::ValueId z = last.Input("z", "f32[batch, wide]");
  const ops::ValueId mean = last.Node("mean", "reduce_mean", {z});
  last.Return(last.Node("loss", "exp", {mean}));
  ModelMaker maker;
  const int data = maker.Data("data", "f32[batch, wide]");
  maker.module.model.loss = maker.Call("last", maker.Add(last.function), {data})[0];
  Apply(ApplyPrecision, Bf16(), &maker.module);
  const Function& function = maker.module.functions[0];
  EXPECT_EQ(TypeIn(function, "mean"), DType::kBF16);
  EXPECT_THAT(NodeLines(function), Contains("loss.f32 = cast(loss)"));
}

// A mask that was cast to f32 multiplies narrow numbers, and counts in f32.
TEST(ApplyPrecision, AMaskMatchesWhatItMultipliesAndCountsWide) {
  FunctionMaker last("last");
  const ops::ValueId z = last.Input("z", "f32[batch, wide]");
  const ops::ValueId mask = last.Input("mask", "bool[batch, wide]");
  Attributes to;
  to.Set("to", std::string("f32"));
  const ops::ValueId ones = last.Node("ones", "cast", {mask}, to);
  const ops::ValueId kept = last.Node("kept", "mul", {z, ones});
  const ops::ValueId count = last.Node("count", "reduce_sum", {ones});
  const ops::ValueId per_step = last.Node("per_step", "step_mean", {count});
  const ops::ValueId sum = last.Node("sum", "reduce_sum", {kept});
  last.Return(last.Node("loss", "div", {sum, per_step}));
  ModelMaker maker;
  const int data = maker.Data("data", "f32[batch, wide]");
  const int counted = maker.Data("counted", "bool[batch, wide]");
  maker.module.model.loss = maker.Call("last", maker.Add(last.function), {data, counted})[0];
  Apply(ApplyPrecision, Bf16(), &maker.module);
  const Function& function = maker.module.functions[0];
  EXPECT_THAT(NodeLines(function),
              ElementsAre("z.bf16 = cast(z)", "ones = cast(mask)", "ones.bf16 = cast(ones)",
                          "kept = mul(z.bf16, ones.bf16)", "count = reduce_sum(ones)",
                          "per_step = step_mean(count)", "sum = reduce_sum(kept)",
                          "per_step.bf16 = cast(per_step)", "loss = div(sum, per_step.bf16)",
                          "loss.f32 = cast(loss)"));
  EXPECT_EQ(TypeIn(function, "count"), DType::kF32);
}

TEST(ApplyPrecision, AStepMeanOfDataCountsWide) {
  FunctionMaker last("last");
  const ops::ValueId weight = last.Input("weight", "f32[batch]");
  const ops::ValueId count = last.Node("count", "reduce_sum", {weight});
  last.Return(last.Node("loss", "step_mean", {count}));
  ModelMaker maker;
  const int data = maker.Data("data", "f32[batch]");
  maker.module.model.loss = maker.Call("last", maker.Add(last.function), {data})[0];
  Apply(ApplyPrecision, Bf16(), &maker.module);
  const Function& function = maker.module.functions[0];
  EXPECT_THAT(NodeLines(function),
              ElementsAre("weight.bf16 = cast(weight)", "count = reduce_sum(weight.bf16)",
                          "loss = step_mean(count)"));
  EXPECT_EQ(TypeIn(function, "count"), DType::kF32);
}

TEST(ApplyPrecision, ModelValuesHaveTheTypesOfTheResults) {
  Module module = Chain();
  Apply(ApplyPrecision, Bf16(), &module);
  std::vector<DType> types;
  for (const ModelValue& value : module.model.values) types.push_back(value.type.dtype);
  EXPECT_THAT(types,
              ElementsAre(DType::kF32, DType::kBF16, DType::kBF16, DType::kBF16, DType::kF32));
}

// Calls share the types of their function. In the classifier layers.0 reads data and layers.1 the
// result of layers.0, so these tensors are wide for both, and for the reader of layers.1.
TEST(ApplyPrecision, AFunctionThatReadsDataInOneCallAndAResultInAnotherHasWidePorts) {
  Module module = SmallClassifier();
  Apply(ApplyPrecision, Bf16(), &module);
  const Function &layer = module.functions[0], &end = module.functions[1];
  EXPECT_EQ(TypeIn(layer, "x"), DType::kF32);
  EXPECT_EQ(TypeIn(layer, "w"), DType::kBF16);
  EXPECT_EQ(TypeIn(layer, "h"), DType::kBF16);
  EXPECT_EQ(layer.results[0].value, Find(layer, "y.f32"));
  EXPECT_THAT(NodeLines(layer), Contains("y = add(x.bf16, m)"));
  EXPECT_EQ(TypeIn(end, "z"), DType::kF32);
  EXPECT_THAT(NodeLines(end), Contains("logits = matmul(z.bf16, out)"));
}

// Gives the node with this name a precision of its own.
void SetPrecision(const std::string& name, DType precision, Function* function) {
  for (Node& node : function->nodes) {
    if (node.name == name) node.precision = precision;
  }
}

TEST(ApplyPrecision, ANodeInF32GetsF32AndItsReadersShareACast) {
  FunctionMaker f("f");
  const ops::ValueId x = f.Input("x", "f32[batch, wide]");
  const ops::ValueId w = f.Parameter("w", "f32[wide, wide]");
  const ops::ValueId h = f.Node("h", "matmul", {x, w});
  const ops::ValueId wide = f.Node("wide", "matmul", {h, w});
  const ops::ValueId more = f.Node("more", "add", {h, wide});
  const ops::ValueId one = f.Node("one", "relu", {more});
  const ops::ValueId two = f.Node("two", "mul", {more, one});
  f.Return(f.Node("loss", "reduce_mean", {two}));
  ModelMaker maker;
  const int data = maker.Data("data", "f32[batch, wide]");
  maker.module.model.loss = maker.Call("f", maker.Add(f.function), {data})[0];
  Function& function = maker.module.functions[0];
  for (const char* name : {"wide", "more"}) SetPrecision(name, DType::kF32, &function);
  Apply(ApplyPrecision, Bf16(), &maker.module);
  EXPECT_THAT(NodeLines(function),
              ElementsAre("x.bf16 = cast(x)", "w.bf16 = cast(w)", "h = matmul(x.bf16, w.bf16)",
                          "h.f32 = cast(h)", "wide = matmul(h.f32, w)", "more = add(h.f32, wide)",
                          "more.bf16 = cast(more)", "one = relu(more.bf16)",
                          "two = mul(more.bf16, one)", "loss = reduce_mean(two)"));
  EXPECT_EQ(TypeIn(function, "w"), DType::kF32) << "a weight read in both precisions";
  EXPECT_EQ(TypeIn(function, "more"), DType::kF32);
  EXPECT_EQ(TypeIn(function, "two"), DType::kBF16);
}

TEST(ApplyPrecision, AJobInF32HasNarrowNodesByRules) {
  Module module = Chain();
  SetPrecision("b", DType::kBF16, &module.functions[1]);
  Apply(ApplyPrecision, ContextOf(""), &module);
  // `last` wants f32 and `inner` gives bf16, so bf16 travels between them. Both calls of `inner`
  // have one type for what they read, and `first` gives it.
  EXPECT_EQ(TypeIn(module.functions[0], "x"), DType::kF32);
  EXPECT_THAT(NodeLines(module.functions[0]), ElementsAre("r = relu(x)", "r.bf16 = cast(r)"));
  EXPECT_THAT(NodeLines(module.functions[1]), ElementsAre("b = matmul(a, w)"));
  for (const char* name : {"a", "w", "b"}) {
    EXPECT_EQ(TypeIn(module.functions[1], name), DType::kBF16) << name;
  }
  EXPECT_THAT(NodeLines(module.functions[2]),
              ElementsAre("z.f32 = cast(z)", "loss = reduce_mean(z.f32)"));
}

TEST(ApplyPrecision, ATensorTravelsInF32OnlyIfMakerAndReaderAreInF32) {
  Module module = Chain();
  SetPrecision("r", DType::kF32, &module.functions[0]);
  Apply(ApplyPrecision, Bf16(), &module);
  EXPECT_THAT(NodeLines(module.functions[0]), ElementsAre("r = relu(x)", "r.bf16 = cast(r)"));
  module = Chain();
  SetPrecision("b", DType::kF32, &module.functions[1]);
  Apply(ApplyPrecision, Bf16(), &module);
  // inner.0 gives inner.1 f32, so all that enters and leaves calls of `inner` is f32.
  EXPECT_THAT(NodeLines(module.functions[0]),
              ElementsAre("x.bf16 = cast(x)", "r = relu(x.bf16)", "r.f32 = cast(r)"));
  EXPECT_THAT(NodeLines(module.functions[1]), ElementsAre("b = matmul(a, w)"));
  for (const char* name : {"a", "w", "b"}) {
    EXPECT_EQ(TypeIn(module.functions[1], name), DType::kF32) << name;
  }
}

// The kernel of softmax_cross_entropy computes in f32 and gives f32 for bf16 logits, too. A rule
// must not make its losses narrower than they are without the rule.
TEST(ApplyPrecision, WhatAnOpGivesInF32AnywayIsNotNarrowedAtABorder) {
  Module module = SmallClassifier();
  Function& end = module.functions[1];
  SetPrecision("losses", DType::kF32, &end);
  Apply(ApplyPrecision, Bf16(), &module);
  EXPECT_THAT(NodeLines(end), ElementsAre("z.bf16 = cast(z)", "logits = matmul(z.bf16, out)",
                                          "logits.f32 = cast(logits)",
                                          "losses = softmax_cross_entropy(logits.f32, labels)",
                                          "loss = reduce_mean(losses)"));
  EXPECT_EQ(TypeIn(end, "loss"), DType::kF32);
}

TEST(ApplyPrecision, AnotherCallReadsAScalarInF32) {
  FunctionMaker first("first"), last("last");
  first.Return(first.Node("sum", "reduce_sum", {first.Input("x", "f32[batch, wide]")}));
  const ops::ValueId s = last.Input("s", "f32[]");
  last.Return(last.Node("loss", "exp", {s}));
  ModelMaker maker;
  const int data = maker.Data("data", "f32[batch, wide]");
  const int f = maker.Add(first.function), l = maker.Add(last.function);
  maker.module.model.loss = maker.Call("last", l, {maker.Call("first", f, {data})[0]})[0];
  Apply(ApplyPrecision, Bf16(), &maker.module);
  EXPECT_EQ(TypeIn(maker.module.functions[0], "sum"), DType::kF32);
  EXPECT_EQ(TypeIn(maker.module.functions[1], "s"), DType::kF32);
  EXPECT_THAT(NodeLines(maker.module.functions[1]), Contains("s.bf16 = cast(s)"));
}

TEST(ApplyPrecision, IntegersStayAsTheyAre) {
  Module module = SmallClassifier();
  Apply(ApplyPrecision, Bf16(), &module);
  const Function& end = module.functions[1];
  EXPECT_EQ(TypeIn(end, "labels"), DType::kI32);
  EXPECT_THAT(NodeLines(end), Not(Contains(HasSubstr("cast(labels)"))));
}

}  // namespace
}  // namespace weir::compiler
