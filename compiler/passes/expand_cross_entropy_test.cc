#include "compiler/passes/pass_testing.h"
#include "compiler/passes/passes.h"
#include "compiler/testing/evaluate_step.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::ElementsAre;

const Pairs kSplitClasses = {{"classes", "tp"}};

TEST(ExpandCrossEntropy, SplitClassesNeedNoWholeRows) {
  Module module = SmallClassifier();
  Apply(ExpandCrossEntropy, ContextOf("tp=2", kSplitClasses), &module);
  EXPECT_THAT(
      NodeLines(module.functions[1]),
      ElementsAre("logits = matmul(z, out)", "losses.max = reduce_max(logits)",
                  "losses.sum_exp, losses.picked = exp_sum_pick(logits, labels, losses.max)",
                  "losses = cross_entropy_finish(losses.max, losses.sum_exp, losses.picked)",
                  "loss = reduce_mean(losses)"));
}

TEST(ExpandCrossEntropy, WholeClassesStay) {
  const std::string before = EverythingOf(SmallClassifier(), sbp::Mesh());
  for (const auto& [mesh, rules] :
       std::vector<std::pair<std::string, Pairs>>{{"", kSplitClasses},
                                                  {"tp=1", kSplitClasses},
                                                  {"dp=2", {{"batch", "dp"}}},
                                                  {"dp=2", kSplitClasses},
                                                  {"tp=2", {{"wide", "tp"}}}}) {
    Module module = SmallClassifier();
    Apply(ExpandCrossEntropy, ContextOf(mesh, rules), &module);
    EXPECT_EQ(EverythingOf(module, sbp::Mesh()), before) << mesh;
  }
}

TEST(ExpandCrossEntropy, LossAndGradientsAreTheSame) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Module module = SmallClassifier();
    const PassContext context = ContextOf("tp=2", kSplitClasses);
    Apply(Differentiate, context, &module);
    const StepInputs inputs = RandomInputs(module, seed);
    const StepOutcome before = EvaluateStep(module, inputs);
    Apply(ExpandCrossEntropy, context, &module);
    const StepOutcome after = EvaluateStep(module, inputs);
    EXPECT_NEAR(after.loss, before.loss, 1e-12);
    ASSERT_EQ(after.gradients.size(), before.gradients.size());
    for (const auto& [name, gradient] : before.gradients) {
      EXPECT_THAT(after.gradients.at(name),
                  ::testing::Pointwise(::testing::DoubleNear(1e-12), gradient))
          << name;
    }
  }
}

// The backward function reads maximum and sum: they stay results of the forward function.
TEST(ExpandCrossEntropy, MaximumAndSumStayTheValuesThatReadersKnow) {
  Module module = SmallClassifier();
  const PassContext context = ContextOf("tp=2", kSplitClasses);
  Apply(Differentiate, context, &module);
  const std::vector<Result> before = module.functions[1].results;
  ASSERT_EQ(before.size(), 4u) << "loss, logits, max, sum_exp";
  Apply(ExpandCrossEntropy, context, &module);
  const Function& function = module.functions[1];
  for (size_t r = 0; r < before.size(); ++r) EXPECT_EQ(function.results[r].value, before[r].value);
  EXPECT_EQ(function.nodes[function.ProducerOf(before[2].value)].op, "reduce_max");
  EXPECT_EQ(function.nodes[function.ProducerOf(before[3].value)].op, "exp_sum_pick");
}

TEST(ExpandCrossEntropy, TheMaximumOfBf16LogitsIsWidened) {
  FunctionMaker maker("f");
  const ops::ValueId logits = maker.Input("logits", "bf16[batch, classes]");
  const ops::ValueId labels = maker.Input("labels", "i32[batch]");
  maker.Return(maker.Node("ce", "softmax_cross_entropy", {logits, labels}));
  ModelMaker model;
  model.Add(maker.function);
  Apply(ExpandCrossEntropy, ContextOf("tp=2", kSplitClasses), &model.module);
  EXPECT_THAT(NodeLines(model.module.functions[0]),
              ElementsAre("ce.raw_max = reduce_max(logits)", "ce.max = cast(ce.raw_max)",
                          "ce.sum_exp, ce.picked = exp_sum_pick(logits, labels, ce.max)",
                          "ce = cross_entropy_finish(ce.max, ce.sum_exp, ce.picked)"));
}

TEST(ExpandCrossEntropy, NewNodesSayWhereTheyComeFrom) {
  Module module = SmallClassifier();
  const uint64_t key = module.functions[1].nodes[1].rng_key;
  Apply(ExpandCrossEntropy, ContextOf("tp=2", kSplitClasses), &module);
  for (size_t n = 1; n < 4; ++n) {
    EXPECT_EQ(module.functions[1].nodes[n].where, "function main.1, node losses");
    EXPECT_EQ(module.functions[1].nodes[n].rng_key, key);
  }
}

}  // namespace
}  // namespace weir::compiler
