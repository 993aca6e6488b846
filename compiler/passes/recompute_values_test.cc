#include <algorithm>

#include "compiler/passes/pass_testing.h"
#include "compiler/passes/passes.h"
#include "compiler/testing/evaluate_step.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Returns the classifier with gradients and layouts. Its layer keeps the named values; none: the
// layer does not say.
Module Prepared(const PassContext& context, const std::optional<std::vector<std::string>>& names) {
  Module module = SmallClassifier();
  EXPECT_TRUE(Differentiate(context, &module).ok());
  EXPECT_TRUE(PropagateLayouts(context, &module).ok());
  Function& layer = module.functions[0];
  if (names.has_value()) {
    layer.keep.emplace();
    for (const std::string& name : *names) layer.keep->push_back(Find(layer, name));
  }
  return module;
}

std::vector<std::string> StashesOf(const Module& module) {
  std::vector<std::string> names;
  const Function& forward = module.functions[0];
  for (size_t r = module.model.functions[0].num_results; r < forward.results.size(); ++r)
    names.push_back(forward.values[forward.results[r].value].name);
  return names;
}

TEST(RecomputeValues, WithoutAListNothingChanges) {
  const PassContext context = ContextOf("tp=2", {{"deep", "tp"}});
  Module module = Prepared(context, std::nullopt);
  const std::string before = EverythingOf(module, context.stage_mesh);
  Apply(RecomputeValues, context, &module);
  EXPECT_EQ(EverythingOf(module, context.stage_mesh), before);
}

TEST(RecomputeValues, AKeptValueStays) {
  const PassContext context = ContextOf("");
  Module module = Prepared(context, {{"r"}});
  const std::string before = EverythingOf(module, context.stage_mesh);
  Apply(RecomputeValues, context, &module);
  EXPECT_EQ(EverythingOf(module, context.stage_mesh), before);
}

TEST(RecomputeValues, WhatIsNotKeptIsComputedAgainFromArguments) {
  const PassContext context = ContextOf("");
  Module module = Prepared(context, std::vector<std::string>{});
  EXPECT_THAT(StashesOf(module), ElementsAre("r"));
  Apply(RecomputeValues, context, &module);
  EXPECT_THAT(StashesOf(module), IsEmpty());
  const Function& backward = module.functions[module.model.functions[0].backward];
  EXPECT_THAT(NodeLines(backward), Contains("h = matmul(x, w)"));
  EXPECT_THAT(NodeLines(backward), Contains("r = relu(h)"));
}

TEST(RecomputeValues, AKeptValueOnTheWayEndsTheChain) {
  const PassContext context = ContextOf("");
  Module module = Prepared(context, {{"h"}});
  Apply(RecomputeValues, context, &module);
  EXPECT_THAT(StashesOf(module), ElementsAre("h"));
  const Function& backward = module.functions[module.model.functions[0].backward];
  EXPECT_THAT(NodeLines(backward), Contains("r = relu(h)"));
  EXPECT_THAT(NodeLines(backward), Not(Contains(HasSubstr("= matmul(x, w)"))));
}

// Rounding is equal because every node is: op, attributes, random key and layouts.
TEST(RecomputeValues, ACopyIsTheForwardNode) {
  const PassContext context = ContextOf("dp=2,tp=2", {{"batch", "dp"}, {"deep", "tp"}});
  Module module = Prepared(context, std::vector<std::string>{});
  Apply(RecomputeValues, context, &module);
  const Function &forward = module.functions[0],
                 &backward = module.functions[module.model.functions[0].backward];
  int copies = 0;
  for (const Node& copy : backward.nodes) {
    if (copy.where.find("computed again") == std::string::npos) continue;
    const auto original =
        std::find_if(forward.nodes.begin(), forward.nodes.end(),
                     [&](const Node& n) { return n.name + ".again" == copy.name; });
    ASSERT_NE(original, forward.nodes.end()) << copy.name;
    EXPECT_EQ(copy.op, original->op);
    EXPECT_EQ(copy.attrs, original->attrs);
    EXPECT_EQ(copy.rng_key, original->rng_key);
    for (size_t i = 0; i < copy.outputs.size(); ++i) {
      EXPECT_EQ(backward.values[copy.outputs[i]].layout,
                forward.values[original->outputs[i]].layout);
    }
    ++copies;
  }
  EXPECT_EQ(copies, 2) << "h and r";
}

TEST(RecomputeValues, ACopyStandsJustBeforeItsFirstReader) {
  const PassContext context = ContextOf("");
  Module module = Prepared(context, {{"h"}});
  Apply(RecomputeValues, context, &module);
  const Function& backward = module.functions[module.model.functions[0].backward];
  for (size_t n = 0; n < backward.nodes.size(); ++n) {
    if (backward.nodes[n].name != "r.again") continue;
    ASSERT_LT(n + 1, backward.nodes.size());
    EXPECT_THAT(backward.nodes[n + 1].inputs, Contains(backward.nodes[n].outputs[0]));
  }
}

TEST(RecomputeValues, LossAndGradientsAreTheSame) {
  const PassContext context = ContextOf("tp=2", {{"deep", "tp"}});
  for (const std::vector<std::string>& keep :
       std::vector<std::vector<std::string>>{{}, {"h"}, {"r"}, {"h", "m"}}) {
    Module module = Prepared(context, keep);
    const StepInputs inputs = RandomInputs(module, 7);
    const StepOutcome before = EvaluateStep(module, inputs);
    Apply(RecomputeValues, context, &module);
    EXPECT_EQ(EvaluateStep(module, inputs), before);
  }
}

}  // namespace
}  // namespace weir::compiler
