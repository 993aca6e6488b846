#include <functional>

#include "compiler/passes/pass.h"
#include "compiler/passes/pass_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Function SoundFunction() {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[batch, wide]");
  const ops::ValueId w = maker.Parameter("w", "f32[wide, deep]");
  const ops::ValueId h = maker.Node("h", "matmul", {x, w});
  maker.Return(maker.Node("y", "relu", {h}));
  return maker.function;
}

void SetLayouts(const std::map<std::string, sbp::Layout>& layouts, Function* function) {
  for (const auto& [name, layout] : layouts)
    function->values[Find(*function, name)].layout = layout;
}

// Spoils a sound function, and returns the verifier's complaint.
std::string FlawOf(const std::function<void(Function*)>& spoil, const std::string& mesh = "tp=2") {
  Function function = SoundFunction();
  spoil(&function);
  const absl::Status status = VerifyFunction(function, ContextOf(mesh));
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  return std::string(status.message());
}

TEST(VerifyFunction, ASoundFunctionPassesWithAndWithoutLayouts) {
  EXPECT_EQ(FlawOf([](Function*) {}), "");
  EXPECT_EQ(FlawOf([](Function* f) {
              SetLayouts({{"x", {sbp::Sbp::B()}},
                          {"w", {sbp::Sbp::S(1)}},
                          {"h", {sbp::Sbp::S(1)}},
                          {"y", {sbp::Sbp::S(1)}}},
                         f);
            }),
            "");
}

TEST(VerifyFunction, EveryDefectOfStructureIsNamedWithItsNode) {
  EXPECT_THAT(
      FlawOf([](Function* f) { std::swap(f->nodes[0], f->nodes[1]); }),
      AllOf(HasSubstr("verifier: function f, node y"), HasSubstr("operand h is not defined")));
  EXPECT_THAT(FlawOf([](Function* f) { f->nodes.push_back(f->nodes[1]); }),
              AllOf(HasSubstr("function f, node y"), HasSubstr("defines y again")));
  EXPECT_THAT(FlawOf([](Function* f) { f->nodes[1].outputs = {f->args[0].value}; }),
              HasSubstr("defines x again"));
  EXPECT_THAT(FlawOf([](Function* f) { f->nodes[1].op = "reluu"; }), HasSubstr("no op \"reluu\""));
  EXPECT_THAT(FlawOf([](Function* f) { f->nodes.pop_back(); }),
              HasSubstr("function f returns an undefined value"));
}

TEST(VerifyFunction, AStoredTypeMustBeTheInferredOne) {
  EXPECT_THAT(
      FlawOf([](Function* f) { f->values[Find(*f, "h")].type = TypeOf("bf16[batch, deep]"); }),
      AllOf(HasSubstr("function f, node h"), HasSubstr("result 0 is bf16"),
            HasSubstr("inferred f32")));
  EXPECT_THAT(
      FlawOf([](Function* f) { f->values[Find(*f, "y")].type = TypeOf("f32[batch, wide]"); }),
      HasSubstr("function f, node y: result 0"));
  EXPECT_THAT(
      FlawOf([](Function* f) { f->values[Find(*f, "w")].type = TypeOf("f32[deep, wide]"); }),
      HasSubstr("function f, node h: W03"));
}

TEST(VerifyFunction, OperandsMustFormALegalSignatureOverEveryAxis) {
  const auto flaw = [](const sbp::Sbp& x, const sbp::Sbp& w, const sbp::Sbp& h) {
    return FlawOf(
        [&](Function* f) {
          SetLayouts({{"x", {sbp::Sbp::B(), x}},
                      {"w", {sbp::Sbp::B(), w}},
                      {"h", {sbp::Sbp::B(), h}},
                      {"y", {sbp::Sbp::B(), h}}},
                     f);
        },
        "dp=2,tp=2");
  };
  EXPECT_EQ(flaw(sbp::Sbp::B(), sbp::Sbp::B(), sbp::Sbp::B()), "");
  EXPECT_EQ(flaw(sbp::Sbp::S(0), sbp::Sbp::B(), sbp::Sbp::S(0)), "");
  EXPECT_THAT(flaw(sbp::Sbp::S(0), sbp::Sbp::B(), sbp::Sbp::B()),
              HasSubstr("no legal signature over mesh axis tp"));
  EXPECT_THAT(flaw(sbp::Sbp::B(), sbp::Sbp::S(0), sbp::Sbp::B()), HasSubstr("node h"));
  // The product of two halves is a partial sum, which relu cannot read.
  EXPECT_THAT(flaw(sbp::Sbp::S(1), sbp::Sbp::S(0), sbp::Sbp::P()),
              AllOf(HasSubstr("node y"), HasSubstr("no legal signature")));
}

TEST(VerifyFunction, LayoutsAreCheckedOnlyWhereANodeHasThemAll) {
  EXPECT_EQ(FlawOf([](Function* f) {
              SetLayouts({{"x", {sbp::Sbp::P()}}, {"h", {sbp::Sbp::B()}}}, f);
            }),
            "");
}

TEST(VerifyFunction, ABoxingMayJoinAnyTwoLayouts) {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[batch, wide]");
  maker.Return(maker.Node("y", kBoxingOp, {x}));
  SetLayouts({{"x", {sbp::Sbp::P()}}, {"y", {sbp::Sbp::S(1)}}}, &maker.function);
  EXPECT_TRUE(VerifyFunction(maker.function, ContextOf("tp=2")).ok());
}

}  // namespace
}  // namespace weir::compiler
