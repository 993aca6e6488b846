#include <algorithm>

#include "compiler/passes/pass_testing.h"
#include "compiler/passes/passes.h"
#include "compiler/testing/evaluate_step.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

using BackwardArg = ModelFunction::BackwardArg;

// Returns the slope of the loss along one weight, by a difference quotient.
double SlopeAt(const Module& module, StepInputs inputs, const std::string& weight, size_t element) {
  constexpr double kStep = 1e-6;
  double& number = inputs.weights.at(weight)[element];
  number += kStep;
  const double above = EvaluateStep(module, inputs).loss;
  number -= 2 * kStep;
  return (above - EvaluateStep(module, inputs).loss) / (2 * kStep);
}

TEST(Differentiate, GradientsAreTheSlopesOfTheLoss) {
  const Module forward = SmallClassifier();
  Module module = SmallClassifier();
  Apply(Differentiate, ContextOf(""), &module);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const StepInputs inputs = RandomInputs(module, seed);
    const StepOutcome outcome = EvaluateStep(module, inputs);
    ASSERT_EQ(outcome.gradients.size(), 5u);
    for (const auto& [weight, gradient] : outcome.gradients) {
      for (size_t i = 0; i < gradient.size(); ++i)
        EXPECT_NEAR(gradient[i], SlopeAt(forward, inputs, weight, i), 1e-6) << weight << " " << i;
    }
  }
}

// x -> square (x times itself) -> twice scaled and summed: each value has several readers.
TEST(Differentiate, AValueWithSeveralReadersGetsTheSumOfTheirGradients) {
  FunctionMaker maker("main.0");
  const ops::ValueId w = maker.Parameter("w", "f32[wide]");
  const ops::ValueId square = maker.Node("square", "mul", {w, w});
  const ops::ValueId twice = maker.Node("twice", "scale", {square}, {{"factor", 2.0}});
  const ops::ValueId sum = maker.Node("sum", "add", {twice, square});
  maker.Return(maker.Node("loss", "reduce_sum", {sum}));
  ModelMaker model;
  model.module.model.loss = model.Call("main.0", model.Add(maker.function), {})[0];
  Apply(Differentiate, ContextOf(""), &model.module);
  StepInputs inputs;
  inputs.weights["w"] = {1, -2, 0.5, 3};
  // The loss is the sum of 3 w^2, so its slope is 6 w.
  EXPECT_THAT(EvaluateStep(model.module, inputs).gradients["w"], ElementsAre(6, -12, 3, 18));
}

TEST(Differentiate, AnUpdateTakesTheMeanOverItsMicroBatches) {
  Module one = SmallClassifier(), four = SmallClassifier();
  PassContext context = ContextOf("");
  Apply(Differentiate, context, &one);
  context.micro_batches_per_update = 4;
  Apply(Differentiate, context, &four);
  const StepInputs inputs = RandomInputs(one, 5);
  const StepOutcome whole = EvaluateStep(one, inputs), quarter = EvaluateStep(four, inputs);
  for (const auto& [name, gradient] : whole.gradients) {
    for (size_t i = 0; i < gradient.size(); ++i)
      EXPECT_DOUBLE_EQ(quarter.gradients.at(name)[i], gradient[i] / 4) << name;
  }
}

TEST(Differentiate, AFixedLossScaleMultipliesAllGradients) {
  Module one = SmallClassifier(), scaled = SmallClassifier();
  PassContext context = ContextOf("");
  Apply(Differentiate, context, &one);
  context.loss_scale = LossScaleSettings{.adapts = false, .factor = 8};
  Apply(Differentiate, context, &scaled);
  const StepInputs inputs = RandomInputs(one, 5);
  const StepOutcome plain = EvaluateStep(one, inputs), large = EvaluateStep(scaled, inputs);
  for (const auto& [name, gradient] : plain.gradients) {
    for (size_t i = 0; i < gradient.size(); ++i)
      EXPECT_DOUBLE_EQ(large.gradients.at(name)[i], 8 * gradient[i]) << name;
  }
}

TEST(Differentiate, WithALossScaleThatAdaptsTheProgramGivesTheGradientOfTheLoss) {
  Module module = SmallClassifier();
  PassContext context = ContextOf("");
  context.loss_scale = LossScaleSettings{};
  Apply(Differentiate, context, &module);
  const ModelFunction& last = module.model.functions[1];
  const auto is_gradient = [](const BackwardArg& arg) {
    return arg.kind == BackwardArg::kResultGrad;
  };
  EXPECT_EQ(std::count_if(last.backward_args.begin(), last.backward_args.end(), is_gradient), 1);
}

TEST(Differentiate, AFunctionHasOneBackwardFunctionHoweverOftenItIsCalled) {
  Module module = SmallClassifier();
  Apply(Differentiate, ContextOf(""), &module);
  std::vector<std::string> names;
  for (const Function& function : module.functions) names.push_back(function.name);
  EXPECT_THAT(names, ElementsAre("layer", "main.1", "layer.backward", "main.1.backward"));
  // The second call of `layer` needs the gradient of x, though the first does not.
  EXPECT_THAT(module.model.functions[0].arg_needs_grad, ElementsAre(1, 1, 1));
  EXPECT_THAT(module.model.functions[1].arg_needs_grad, ElementsAre(1, 0, 1))
      << "labels have no gradient";
}

TEST(Differentiate, OnlyWhatGradientsReadIsStashed) {
  Module module = SmallClassifier();
  Apply(Differentiate, ContextOf(""), &module);
  for (const ModelFunction& f : module.model.functions) {
    const Function &forward = module.functions[f.forward], &backward = module.functions[f.backward];
    ASSERT_EQ(f.backward_args.size(), backward.args.size());
    std::vector<char> read(forward.results.size(), 0);
    for (size_t a = 0; a < f.backward_args.size(); ++a) {
      const bool in_use =
          std::any_of(backward.nodes.begin(), backward.nodes.end(), [&](const Node& node) {
            return std::count(node.inputs.begin(), node.inputs.end(), backward.args[a].value) > 0;
          });
      EXPECT_TRUE(in_use) << backward.values[backward.args[a].value].name;
      if (f.backward_args[a].kind == BackwardArg::kForwardResult)
        read[f.backward_args[a].index] = 1;
    }
    for (size_t r = f.num_results; r < forward.results.size(); ++r)
      EXPECT_TRUE(read[r]) << forward.values[forward.results[r].value].name;
  }
  std::vector<std::string> stashes;
  const Function& layer = module.functions[0];
  for (size_t r = 1; r < layer.results.size(); ++r)
    stashes.push_back(layer.values[layer.results[r].value].name);
  EXPECT_THAT(stashes, UnorderedElementsAre("r")) << "relu's result; h is not read";
}

TEST(Differentiate, GradientsOfParametersAreF32AndStayWhereTheyArise) {
  Module module = SmallClassifier();
  PassContext context = ContextOf("");
  context.precision = DType::kBF16;
  ASSERT_TRUE(ApplyPrecision(context, &module).ok());
  Apply(Differentiate, context, &module);
  const ModelFunction& f = module.model.functions[0];
  const Function &forward = module.functions[f.forward], &backward = module.functions[f.backward];
  for (size_t r = 0; r < f.backward_results.size(); ++r) {
    const bool parameter = forward.args[f.backward_results[r]].kind == ArgKind::kParameter;
    EXPECT_EQ(backward.values[backward.results[r].value].type.dtype, DType::kF32);
    EXPECT_EQ(backward.results[r].kind, parameter ? ResultKind::kNatural : ResultKind::kActivation);
  }
}

TEST(Differentiate, TheGradientOfAWeightThatIsReadInBothPrecisionsIsNotRounded) {
  FunctionMaker f("f");
  const ops::ValueId x = f.Input("x", "f32[batch, wide]");
  const ops::ValueId w = f.Parameter("w", "f32[wide, wide]");
  const ops::ValueId h = f.Node("h", "matmul", {x, w});
  f.Return(f.Node("loss", "reduce_mean", {f.Node("y", "matmul", {h, w})}));
  f.function.nodes[1].precision = DType::kF32;
  ModelMaker maker;
  const int data = maker.Data("data", "f32[batch, wide]");
  maker.module.model.loss = maker.Call("f", maker.Add(f.function), {data})[0];
  PassContext context = ContextOf("");
  context.precision = DType::kBF16;
  ASSERT_TRUE(ApplyPrecision(context, &maker.module).ok());
  Apply(Differentiate, context, &maker.module);
  const Function& backward = maker.module.functions[maker.module.model.functions[0].backward];
  int gradients = 0;
  for (const Node& node : backward.nodes) {
    if (node.op == "matmul_grad_w") ++gradients;
    if (node.op != "cast" || node.attrs.Str("to") != "bf16") continue;
    const int producer = backward.ProducerOf(node.inputs[0]);
    EXPECT_TRUE(producer < 0 || backward.nodes[producer].op != "matmul_grad_w") << node.where;
  }
  EXPECT_EQ(gradients, 2);
}

// A call whose result is only a metric.
TEST(Differentiate, AFunctionOffTheWayToTheLossHasNoBackwardFunction) {
  FunctionMaker metric("metric");
  const ops::ValueId x = metric.Input("x", "f32[batch, wide]");
  metric.Return(metric.Node("size", "reduce_mean", {x}));
  ModelMaker maker;
  maker.module = SmallClassifier();
  const int layer_result = maker.module.model.calls[1].results[0];
  maker.Call("metric", maker.Add(metric.function), {layer_result});
  Apply(Differentiate, ContextOf(""), &maker.module);
  EXPECT_EQ(maker.module.model.functions[2].backward, -1);
  EXPECT_GE(maker.module.model.functions[0].backward, 0);
}

// Returns the refusal of a model of one function of a parameter `w` and data `x` and `labels`.
std::string FlawOf(ops::ValueId (*make_loss)(FunctionMaker*, ops::ValueId w, ops::ValueId x,
                                             ops::ValueId labels)) {
  FunctionMaker maker("main.0");
  const ops::ValueId x = maker.Input("x", "f32[batch, classes]");
  const ops::ValueId labels = maker.Input("labels", "i32[batch]");
  const ops::ValueId w = maker.Parameter("w", "f32[classes, classes]");
  const ops::ValueId rows = make_loss(&maker, w, x, labels);
  maker.Return(maker.Node("loss", "reduce_mean", {rows}));
  ModelMaker model;
  const int data = model.Data("x", "f32[batch, classes]"), ids = model.Data("labels", "i32[batch]");
  const int function = model.Add(maker.function);
  model.module.model.loss = model.Call("main.0", function, {data, ids})[0];
  const absl::Status status = Differentiate(ContextOf(""), &model.module);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(Differentiate, AnOpWithoutAGradientOnTheWayIsRefused) {
  EXPECT_THAT(
      FlawOf([](FunctionMaker* maker, ops::ValueId w, ops::ValueId x, ops::ValueId labels) {
        return maker->Node("hit", "accuracy", {maker->Node("logits", "matmul", {x, w}), labels});
      }),
      AllOf(HasSubstr("W0450 at function main.0, node hit"), HasSubstr("op \"accuracy\"")));
}

TEST(Differentiate, AParameterThatTheLossDoesNotDependOnIsRefused) {
  EXPECT_THAT(FlawOf([](FunctionMaker*, ops::ValueId, ops::ValueId x, ops::ValueId) { return x; }),
              HasSubstr("W0475 at function main.0, parameter w"));
}

TEST(Differentiate, ALossWithoutParametersIsRefused) {
  FunctionMaker maker("main.0");
  const ops::ValueId x = maker.Input("x", "f32[batch]");
  maker.Return(maker.Node("loss", "reduce_mean", {x}));
  ModelMaker model;
  const int data = model.Data("x", "f32[batch]");
  model.module.model.loss = model.Call("main.0", model.Add(maker.function), {data})[0];
  const absl::Status status = Differentiate(ContextOf(""), &model.module);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("W0451 at graph"), HasSubstr("main.0.loss"),
                    HasSubstr("a parameter on the way to the loss")));
}

}  // namespace
}  // namespace weir::compiler
