#include "compiler/ir/function_builder.h"

#include "compiler/testing/small_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::ElementsAre;

class FunctionBuilderTest : public ::testing::Test {
 protected:
  const sbp::Mesh mesh_ = MeshOf("dp=2");
  const sbp::Layout whole_ = {sbp::Sbp::B()}, split_ = {sbp::Sbp::S(0)}, partial_ = {sbp::Sbp::P()};
  const sbp::TensorType type_ = TypeOf("f32[batch, wide]");
};

TEST_F(FunctionBuilderTest, ArgumentsHaveTheGivenTypesAndLayoutsAndNumberedNames) {
  FunctionBuilder builder("f", mesh_);
  builder.AddArg("gradient", type_, split_);
  builder.AddArg("scale", TypeOf("f32[]"), whole_);
  const Function function = builder.Take();
  EXPECT_EQ(function.name, "f");
  ASSERT_EQ(function.args.size(), 2u);
  EXPECT_EQ(function.values[function.args[0].value].name, "a0");
  EXPECT_EQ(function.values[function.args[1].value].name, "a1");
  EXPECT_EQ(function.values[function.args[0].value].layout, split_);
  EXPECT_EQ(function.values[function.args[0].value].type, type_);
  EXPECT_EQ(function.args[1].kind, ArgKind::kFixed);
}

// Equal functions have equal texts whatever they are made for, so calls can share them.
TEST_F(FunctionBuilderTest, NamesOfTheCallerDoNotShowInTheText) {
  const auto text = [&](const std::string& name) {
    FunctionBuilder builder("cast", mesh_);
    const ops::ValueId arg = builder.AddArg(name, type_, whole_);
    builder.AddResult(builder.Emit("relu", {arg}, {{type_, whole_}}, {})[0],
                      Frequency::kMicroBatch);
    return ToText(builder.Take(), mesh_);
  };
  EXPECT_EQ(text("layers.0.w"), text("layers.1.w"));
}

TEST_F(FunctionBuilderTest, NodesStandInOrderWithTheirResultsAndPlaces) {
  FunctionBuilder builder("f", mesh_);
  const ops::ValueId x = builder.AddArg("x", type_, split_);
  const ops::ValueId y = builder.Emit("relu", {x}, {{type_, split_}}, {})[0];
  const std::vector<ops::ValueId> two =
      builder.Emit("sgd", {y, x}, {{type_, split_}, {type_, whole_}}, {{"momentum", 0.5}});
  ASSERT_EQ(two.size(), 2u);
  const Function function = builder.Take();
  EXPECT_THAT(NodeLines(function), ElementsAre("v1 = relu(a0)", "v2, v3 = sgd(v1, a0)"));
  EXPECT_EQ(function.nodes[1].where, "function f, node sgd_1");
  EXPECT_EQ(function.nodes[1].attrs.Real("momentum"), 0.5);
  EXPECT_EQ(function.values[two[1]].layout, whole_);
}

TEST_F(FunctionBuilderTest, BoxesOnlyWhatLiesElsewhere) {
  FunctionBuilder builder("f", mesh_);
  const ops::ValueId x = builder.AddArg("x", type_, partial_);
  EXPECT_EQ(builder.Boxed(x, partial_), x);
  const ops::ValueId y = builder.Boxed(x, split_);
  EXPECT_NE(y, x);
  const Function function = builder.Take();
  EXPECT_THAT(NodeLines(function), ElementsAre("v1 = boxing(a0)"));
  EXPECT_EQ(function.values[y].layout, split_);
  EXPECT_EQ(function.values[y].type, type_);
}

TEST_F(FunctionBuilderTest, AConstantSaysItsTypeInFull) {
  FunctionBuilder builder("f", mesh_);
  builder.EmitConstant(0.25, TypeOf("f32[batch, heads]"), whole_);
  const Function function = builder.Take();
  EXPECT_EQ(function.nodes[0].attrs.Real("value"), 0.25);
  // The text needs no table of dimensions.
  absl::StatusOr<sbp::TensorType> read = ops::ParseType(function.nodes[0].attrs.Str("to"), {});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, TypeOf("f32[batch, heads]"));
}

TEST_F(FunctionBuilderTest, OnlyAResultOfAStepIsKeptOverTheMicroBatches) {
  FunctionBuilder builder("f", mesh_);
  const ops::ValueId x = builder.AddArg("x", type_, whole_);
  builder.AddResult(x, Frequency::kStep);
  builder.AddResult(x, Frequency::kMicroBatch);
  const Function function = builder.Take();
  EXPECT_TRUE(function.results[0].per_step);
  EXPECT_FALSE(function.results[1].per_step);
  EXPECT_EQ(function.results[0].kind, ResultKind::kNatural);
}

TEST_F(FunctionBuilderTest, StatesHaveTheirNames) {
  FunctionBuilder builder("f", mesh_);
  const ops::ValueId x = builder.AddArg("x", type_, whole_);
  const ops::ValueId y = builder.Emit("relu", {x}, {{type_, whole_}}, {})[0];
  builder.MarkState(y, "momentum");
  EXPECT_EQ(builder.StateName(y), "momentum");
  const Function function = builder.Take();
  EXPECT_THAT(function.states,
              ElementsAre(std::pair<const ops::ValueId, std::string>(y, "momentum")));
}

}  // namespace
}  // namespace weir::compiler
