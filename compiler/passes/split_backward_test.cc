#include <algorithm>

#include "compiler/passes/pass_testing.h"
#include "compiler/passes/passes.h"
#include "compiler/testing/evaluate_step.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

Module Prepared(const PassContext& context, Module module) {
  EXPECT_TRUE(Differentiate(context, &module).ok());
  EXPECT_TRUE(PropagateLayouts(context, &module).ok());
  return module;
}

TEST(SplitBackward, LossAndGradientsAreTheSame) {
  for (const auto& [mesh, rules] : std::vector<std::pair<std::string, Pairs>>{
           {"", {}}, {"tp=2", {{"deep", "tp"}}}, {"dp=2", {{"batch", "dp"}}}}) {
    const PassContext context = ContextOf(mesh, rules);
    Module module = Prepared(context, SmallClassifier());
    const StepInputs inputs = RandomInputs(module, 3);
    const StepOutcome before = EvaluateStep(module, inputs);
    Apply(SplitBackward, context, &module);
    EXPECT_EQ(EvaluateStep(module, inputs), before) << mesh;
  }
}

TEST(SplitBackward, GradientsOfWeightsMoveAndGradientsOfActivationsStay) {
  const PassContext context = ContextOf("");
  Module module = Prepared(context, SmallClassifier());
  Apply(SplitBackward, context, &module);
  for (const ModelFunction& f : module.model.functions) {
    const Function &forward = module.functions[f.forward], &backward = module.functions[f.backward];
    ASSERT_GE(f.weight_gradient, 0) << forward.name;
    const Function& weights = module.functions[f.weight_gradient];
    EXPECT_EQ(weights.name, forward.name + ".weight_gradient");
    EXPECT_THAT(NodeLines(weights), Each(HasSubstr("= matmul_grad_w(")));
    EXPECT_THAT(NodeLines(backward), Not(Contains(HasSubstr("matmul_grad_w"))));
    for (int arg : f.backward_results)
      EXPECT_EQ(forward.args[arg].kind, ArgKind::kActivation) << forward.name;
    std::vector<int> parameters;
    for (const ParameterInfo& parameter : forward.parameters) parameters.push_back(parameter.arg);
    std::vector<int> moved = f.weight_gradient_results;
    std::sort(moved.begin(), moved.end());
    EXPECT_EQ(moved, parameters) << forward.name;
  }
}

TEST(SplitBackward, ArgumentsThatOnlyMovedNodesReadMoveToo) {
  const PassContext context = ContextOf("");
  Module module = Prepared(context, SmallClassifier());
  Apply(SplitBackward, context, &module);
  for (const ModelFunction& f : module.model.functions) {
    for (int index : {f.backward, f.weight_gradient}) {
      const Function& function = module.functions[index];
      for (const Arg& arg : function.args) {
        const bool read =
            std::any_of(function.nodes.begin(), function.nodes.end(), [&](const Node& node) {
              return std::count(node.inputs.begin(), node.inputs.end(), arg.value) > 0;
            });
        EXPECT_TRUE(read) << function.name << " " << function.values[arg.value].name;
      }
    }
    EXPECT_EQ(f.backward_args.size(), module.functions[f.backward].args.size());
    EXPECT_EQ(f.weight_gradient_args.size(), module.functions[f.weight_gradient].args.size());
  }
}

// The gradient of a norm's scale comes with the gradient of its input, from one node.
TEST(SplitBackward, AGradientOfAWeightFromANodeThatStaysStays) {
  FunctionMaker norm("norm"), end("main.1");
  const ops::ValueId x = norm.Input("x", "f32[batch, wide]");
  const ops::ValueId gamma = norm.Parameter("gamma", "f32[wide]");
  norm.Return(norm.Node("y", "rms_norm", {x, gamma}));
  const ops::ValueId z = end.Input("z", "f32[batch, wide]");
  end.Return(end.Node("loss", "reduce_mean", {z}));
  ModelMaker maker;
  const int data = maker.Data("x", "f32[batch, wide]"), norms = maker.Add(norm.function);
  const int once = maker.Call("norm.0", norms, {data})[0];
  const int twice = maker.Call("norm.1", norms, {once})[0];
  maker.module.model.loss = maker.Call("main.1", maker.Add(end.function), {twice})[0];
  const PassContext context = ContextOf("");
  Module module = Prepared(context, std::move(maker.module));
  const std::string before = EverythingOf(module, context.stage_mesh);
  Apply(SplitBackward, context, &module);
  EXPECT_EQ(EverythingOf(module, context.stage_mesh), before);
}

// The first function has no activation that needs a gradient, so all of its work can wait.
TEST(SplitBackward, AFunctionThatOnlyReadsDataMovesWhole) {
  FunctionMaker first("first");
  const ops::ValueId x = first.Input("x", "f32[batch, wide]"),
                     w = first.Parameter("w", "f32[wide, wide]");
  const ops::ValueId h = first.Node("h", "matmul", {x, w});
  const ops::ValueId r = first.Node("r", "relu", {h});
  first.Return(first.Node("loss", "reduce_mean", {r}));
  ModelMaker maker;
  const int data = maker.Data("x", "f32[batch, wide]");
  maker.module.model.loss = maker.Call("first", maker.Add(first.function), {data})[0];
  const PassContext context = ContextOf("");
  Module module = Prepared(context, std::move(maker.module));
  const size_t num_nodes = module.functions[1].nodes.size();
  const StepInputs inputs = RandomInputs(module, 9);
  const StepOutcome before = EvaluateStep(module, inputs);
  Apply(SplitBackward, context, &module);
  EXPECT_TRUE(module.functions[1].nodes.empty());
  EXPECT_TRUE(module.functions[1].results.empty());
  EXPECT_EQ(module.functions[2].nodes.size(), num_nodes);
  EXPECT_EQ(EvaluateStep(module, inputs), before);
}

TEST(SplitBackward, NodesNameTheirNewFunction) {
  const PassContext context = ContextOf("");
  Module module = Prepared(context, SmallClassifier());
  Apply(SplitBackward, context, &module);
  const Function& weights = module.functions[module.model.functions[0].weight_gradient];
  for (const Node& node : weights.nodes)
    EXPECT_THAT(node.where, ::testing::StartsWith("function layer.weight_gradient, node "));
}

}  // namespace
}  // namespace weir::compiler
