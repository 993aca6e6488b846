#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/passes/pass_testing.h"
#include "compiler/passes/passes.h"
#include "compiler/testing/evaluate_step.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the classifier with gradients, laid out.
Module LaidOut(const PassContext& context) {
  Module module = SmallClassifier();
  EXPECT_TRUE(Differentiate(context, &module).ok());
  Apply(PropagateLayouts, context, &module);
  return module;
}

std::string WhyOf(const Function& function, const std::string& name, const PassContext& context) {
  return ToText(function.values[Find(function, name)].why, context.stage_mesh);
}

std::string LayoutOf(const Function& function, const std::string& name,
                     const PassContext& context) {
  return ToText(function.values[Find(function, name)].layout, context.stage_mesh);
}

int NumBoxings(const Function& function) {
  return static_cast<int>(std::count_if(function.nodes.begin(), function.nodes.end(),
                                        [](const Node& node) { return node.op == kBoxingOp; }));
}

TEST(PropagateLayouts, WithDataParallelismOnlyGradientsOfWeightsArePartial) {
  const PassContext context = ContextOf("dp=2", {{"batch", "dp"}});
  const Module module = LaidOut(context);
  const Function &layer = module.functions[0], &backward = module.functions[2];
  for (const char* name : {"x", "h", "r", "m", "y"})
    EXPECT_EQ(LayoutOf(layer, name, context), "[dp: S(0)]") << name;
  for (const char* name : {"w", "v"}) EXPECT_EQ(LayoutOf(layer, name, context), "[dp: B]") << name;
  // The loss, a scalar, is merged because it leaves its function.
  for (const Function& function : module.functions)
    EXPECT_EQ(NumBoxings(function), function.name == "main.1" ? 1 : 0) << function.name;
  for (size_t r = 0; r < backward.results.size(); ++r) {
    const int arg = module.model.functions[0].backward_results[r];
    EXPECT_EQ(ToText(backward.values[backward.results[r].value].layout, context.stage_mesh),
              layer.args[arg].kind == ArgKind::kParameter ? "[dp: P(sum)]" : "[dp: S(0)]");
  }
}

// A split of the inner dimension needs no transfer until the second product, which is partial.
TEST(PropagateLayouts, ASplitInnerDimensionIsMergedOnce) {
  const PassContext context = ContextOf("tp=2", {{"deep", "tp"}});
  const Module module = LaidOut(context);
  const Function& layer = module.functions[0];
  EXPECT_EQ(LayoutOf(layer, "w", context), "[tp: S(1)]");
  EXPECT_EQ(LayoutOf(layer, "v", context), "[tp: S(0)]");
  EXPECT_EQ(LayoutOf(layer, "h", context), "[tp: S(1)]");
  EXPECT_EQ(LayoutOf(layer, "m", context), "[tp: P(sum)]");
  EXPECT_THAT(NodeLines(layer), ElementsAre("h = matmul(x, w)", "r = relu(h)", "m = matmul(r, v)",
                                            "m.as0 = boxing(m)", "y = add(x, m.as0)"));
  EXPECT_EQ(LayoutOf(layer, "m.as0", context), "[tp: B]");
}

TEST(PropagateLayouts, WhyNamesTheRule) {
  const PassContext context = ContextOf("tp=2", {{"deep", "tp"}});
  const Module module = LaidOut(context);
  const Function& layer = module.functions[0];
  EXPECT_EQ(WhyOf(layer, "w", context), "tp: rule deep -> tp");
  EXPECT_EQ(WhyOf(layer, "h", context), "tp: rule deep -> tp");
  EXPECT_EQ(WhyOf(layer, "r", context), "tp: rule deep -> tp");
  EXPECT_EQ(WhyOf(layer, "m.as0", context), "for y");
}

TEST(PropagateLayouts, ASplitWithoutARuleIsFollowedButNotInvented) {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[rows, wide]"),
                     z = maker.Input("z", "f32[rows, wide]");
  maker.Return(maker.Node("y", "relu", {x}));
  maker.Return(maker.Node("u", "relu", {z}));
  for (Result& result : maker.function.results) result.kind = ResultKind::kNatural;
  ModelMaker model;
  model.Add(maker.function);
  const PassContext context = ContextOf("tp=2", {}, {{"f/x", "[tp: S(1)]"}});
  Apply(PropagateLayouts, context, &model.module);
  const Function& function = model.module.functions[0];
  EXPECT_EQ(LayoutOf(function, "y", context), "[tp: S(1)]");
  EXPECT_EQ(WhyOf(function, "y", context), "tp: follows its operand, split by wide");
  EXPECT_EQ(LayoutOf(function, "u", context), "[tp: B]");
}

TEST(PropagateLayouts, TwoReadersOfOneLayoutShareABoxing) {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[rows, wide]"),
                     w = maker.Parameter("w", "f32[wide, deep]");
  const ops::ValueId p = maker.Node("p", "matmul", {x, w});
  maker.Return(maker.Node("a", "relu", {p}));
  maker.Return(maker.Node("b", "relu", {p}));
  ModelMaker model;
  model.Add(maker.function);
  Apply(PropagateLayouts, ContextOf("tp=2", {{"wide", "tp"}}), &model.module);
  EXPECT_THAT(
      NodeLines(model.module.functions[0]),
      ElementsAre("p = matmul(x, w)", "p.as0 = boxing(p)", "a = relu(p.as0)", "b = relu(p.as0)"));
}

// Sums of partial sums stay partial, and merge once.
TEST(PropagateLayouts, PartialSumsPassThroughASum) {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[rows, wide]");
  const ops::ValueId w = maker.Parameter("w", "f32[wide, deep]"),
                     v = maker.Parameter("v", "f32[wide, deep]");
  const ops::ValueId p = maker.Node("p", "matmul", {x, w}), q = maker.Node("q", "matmul", {x, v});
  maker.Return(maker.Node("s", "add", {p, q}));
  ModelMaker model;
  model.Add(maker.function);
  const PassContext context = ContextOf("tp=2", {{"wide", "tp"}});
  Apply(PropagateLayouts, context, &model.module);
  const Function& function = model.module.functions[0];
  EXPECT_EQ(LayoutOf(function, "s", context), "[tp: P(sum)]");
  EXPECT_EQ(NumBoxings(function), 1);
  EXPECT_EQ(function.values[function.results[0].value].layout, sbp::Broadcast(context.stage_mesh));
}

TEST(PropagateLayouts, AnExplicitLayoutHoldsForAllReaders) {
  const PassContext context = ContextOf("tp=2", {{"deep", "tp"}}, {{"layer/h", "[tp: B]"}});
  const Module module = LaidOut(context);
  const Function& layer = module.functions[0];
  EXPECT_EQ(LayoutOf(layer, "h", context), "[tp: B]");
  const Function& backward = module.functions[2];
  EXPECT_EQ(LayoutOf(backward, "r", context), LayoutOf(layer, "r", context));
}

TEST(PropagateLayouts, APartialArgumentIsRefused) {
  Module module = SmallClassifier();
  const absl::Status status =
      PropagateLayouts(ContextOf("tp=2", {}, {{"layer/x", "[tp: P(sum)]"}}), &module);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("W0460 at function layer, tensor x"), HasSubstr("[tp: P(sum)]")));
}

TEST(PropagateLayouts, OnOneDeviceNothingIsBoxed) {
  const Module module = LaidOut(ContextOf(""));
  for (const Function& function : module.functions) EXPECT_EQ(NumBoxings(function), 0);
}

TEST(PropagateLayouts, BackwardReadsValuesWhereForwardHasThem) {
  const PassContext context = ContextOf("dp=2,tp=2", {{"batch", "dp"}, {"deep", "tp"}});
  const Module module = LaidOut(context);
  for (const ModelFunction& f : module.model.functions) {
    const Function &forward = module.functions[f.forward], &backward = module.functions[f.backward];
    for (size_t a = 0; a < f.backward_args.size(); ++a) {
      const ModelFunction::BackwardArg& from = f.backward_args[a];
      const ops::ValueId source = from.kind == ModelFunction::BackwardArg::kForwardArg
                                      ? forward.args[from.index].value
                                      : forward.results[from.index].value;
      EXPECT_EQ(backward.values[backward.args[a].value].layout, forward.values[source].layout);
    }
  }
}

// Whatever the rules are: weights stay where their rules put them, results of functions lie where
// the rules put them, every signature is legal (Apply), and the step computes the same.
TEST(PropagateLayouts, UnderRandomRulesTheStepComputesTheSame) {
  const std::vector<std::string> dims = {"batch", "wide", "deep", "classes"};
  int num_boxings = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    uint64_t n = 0;
    const auto below = [&](size_t limit) {
      return static_cast<size_t>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    Pairs rules;
    for (size_t i = below(5); i > 0; --i) rules.push_back({dims[below(4)], below(2) ? "dp" : "tp"});
    const PassContext context = ContextOf("dp=2,tp=2", rules);
    Module module = SmallClassifier();
    ASSERT_TRUE(Differentiate(context, &module).ok());
    ASSERT_TRUE(ExpandCrossEntropy(context, &module).ok());
    const StepInputs inputs = RandomInputs(module, seed);
    const StepOutcome before = EvaluateStep(module, inputs);
    Apply(PropagateLayouts, context, &module);
    EXPECT_EQ(EvaluateStep(module, inputs), before);
    for (const ModelFunction& f : module.model.functions) {
      const Function& forward = module.functions[f.forward];
      for (const Arg& arg : forward.args) {
        const RuleScope scope =
            arg.kind == ArgKind::kParameter ? RuleScope::kParameters : RuleScope::kActivations;
        EXPECT_EQ(forward.values[arg.value].layout,
                  context.rules.LayoutOf(forward.values[arg.value].type, scope));
      }
      const Value& result = forward.values[forward.results[0].value];
      EXPECT_EQ(result.layout, context.rules.LayoutOf(result.type, RuleScope::kActivations));
    }
    for (const Function& function : module.functions) num_boxings += NumBoxings(function);
  }
  EXPECT_GT(num_boxings, 60);
}

}  // namespace
}  // namespace weir::compiler
