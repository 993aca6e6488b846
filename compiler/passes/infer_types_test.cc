#include "compiler/passes/infer_types.h"

#include "compiler/passes/pass_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// x -> h (matmul with w) -> boxed -> r; the per-sample loss of r is always f32.
FunctionMaker Chain() {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[batch, wide]");
  const ops::ValueId labels = maker.Input("labels", "i32[batch]");
  const ops::ValueId w = maker.Parameter("w", "f32[wide, classes]");
  const ops::ValueId h = maker.Node("h", "matmul", {x, w});
  const ops::ValueId boxed = maker.Node("boxed", kBoxingOp, {h});
  const ops::ValueId r = maker.Node("r", "relu", {boxed});
  maker.Return(maker.Node("loss", "softmax_cross_entropy", {r, labels}));
  return maker;
}

TEST(InferTypes, AnElementTypeGoesThroughNodesAndBoxings) {
  Function function = Chain().function;
  for (const char* name : {"x", "w"})
    function.values[Find(function, name)].type.dtype = DType::kBF16;
  ASSERT_TRUE(InferTypes(ContextOf(""), &function).ok());
  EXPECT_EQ(function.values[Find(function, "h")].type, TypeOf("bf16[batch, classes]"));
  EXPECT_EQ(function.values[Find(function, "boxed")].type, TypeOf("bf16[batch, classes]"));
  EXPECT_EQ(function.values[Find(function, "r")].type, TypeOf("bf16[batch, classes]"));
  EXPECT_EQ(function.values[Find(function, "loss")].type, TypeOf("f32[batch]"));
  EXPECT_EQ(function.values[Find(function, "labels")].type, TypeOf("i32[batch]"));
}

TEST(InferTypes, TypesThatAreRightStay) {
  Function function = Chain().function;
  const std::string before = ToText(function, sbp::Mesh());
  ASSERT_TRUE(InferTypes(ContextOf(""), &function).ok());
  EXPECT_EQ(ToText(function, sbp::Mesh()), before);
}

TEST(InferTypes, OperandsThatDoNotFitAreRefusedWithThePlace) {
  Function function = Chain().function;
  function.values[Find(function, "w")].type.dtype = DType::kBF16;
  const absl::Status status = InferTypes(ContextOf(""), &function);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("W03"), HasSubstr(" at function f, node h")));
}

TEST(InferTypes, AnUnknownOpIsAFaultOfTheCompiler) {
  Function function = Chain().function;
  function.nodes[0].op = "matmull";
  const absl::Status status = InferTypes(ContextOf(""), &function);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"matmull\" at function f, node h"));
}

}  // namespace
}  // namespace weir::compiler
