#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/passes/pass_testing.h"
#include "compiler/passes/passes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

using ::testing::ElementsAre;

Module ModuleOf(Function function) {
  ModelMaker maker;
  maker.Add(std::move(function));
  return std::move(maker.module);
}

std::vector<std::string> LinesAfter(Function function) {
  Module module = ModuleOf(std::move(function));
  Apply(RemoveDeadNodes, ContextOf(""), &module);
  return NodeLines(module.functions[0]);
}

TEST(RemoveDeadNodes, AChainThatNoResultReadsGoes) {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[batch, wide]");
  const ops::ValueId a = maker.Node("a", "relu", {x});
  const ops::ValueId b = maker.Node("b", "relu", {a});
  maker.Node("c", "add", {b, a});
  maker.Return(maker.Node("y", "scale", {a}, {{"factor", 2.0}}));
  EXPECT_THAT(LinesAfter(maker.function), ElementsAre("a = relu(x)", "y = scale(a)"));
}

TEST(RemoveDeadNodes, ANodeThatWritesAStateStaysThoughNobodyReadsIt) {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[batch, wide]");
  const ops::ValueId a = maker.Node("a", "relu", {x});
  maker.function.states[maker.Node("m", "relu", {a})] = "momentum";
  maker.Node("dead", "relu", {a});
  EXPECT_THAT(LinesAfter(maker.function), ElementsAre("a = relu(x)", "m = relu(a)"));
}

TEST(RemoveDeadNodes, OptionalResultsAfterTheLastThatIsReadGo) {
  const auto lines = [](int read) {
    FunctionMaker maker("f");
    const ops::ValueId logits = maker.Input("logits", "f32[batch, classes]");
    const ops::ValueId labels = maker.Input("labels", "i32[batch]");
    maker.Return(maker.Nodes(3, "ce", "softmax_cross_entropy", {logits, labels})[read]);
    return LinesAfter(maker.function);
  };
  EXPECT_THAT(lines(0), ElementsAre("ce = softmax_cross_entropy(logits, labels)"));
  EXPECT_THAT(lines(1), ElementsAre("ce, ce.1 = softmax_cross_entropy(logits, labels)"));
  EXPECT_THAT(lines(2), ElementsAre("ce, ce.1, ce.2 = softmax_cross_entropy(logits, labels)"));
}

TEST(RemoveDeadNodes, AResultThatIsNotOptionalStaysBesideOneThatIsRead) {
  FunctionMaker maker("f");
  const ops::ValueId logits = maker.Input("logits", "f32[batch, classes]");
  const ops::ValueId labels = maker.Input("labels", "i32[batch]"),
                     max = maker.Input("m", "f32[batch]");
  maker.Return(maker.Nodes(2, "sums", "exp_sum_pick", {logits, labels, max})[0]);
  EXPECT_THAT(LinesAfter(maker.function),
              ElementsAre("sums, sums.1 = exp_sum_pick(logits, labels, m)"));
}

// A node stays if and only if some result can be reached from it along readers.
TEST(RemoveDeadNodes, InRandomFunctionsExactlyTheNodesOnAWayToAResultStay) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    uint64_t n = 0;
    const auto below = [&](size_t limit) {
      return static_cast<size_t>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    FunctionMaker maker("f");
    std::vector<ops::ValueId> values = {maker.Input("x0", "f32[wide]"),
                                        maker.Input("x1", "f32[wide]")};
    std::vector<std::set<size_t>> read_by(2);
    for (size_t i = 2; i < 12; ++i) {
      const size_t a = below(i), b = below(i);
      values.push_back(maker.Node(absl::StrCat("n", i), "add", {values[a], values[b]}));
      read_by.emplace_back();
      read_by[a].insert(i);
      read_by[b].insert(i);
    }
    std::set<size_t> results = {below(12), below(12)};
    for (size_t result : results) maker.Return(values[result]);
    const std::vector<std::string> lines = NodeLines(maker.function);
    std::vector<std::string> expected;
    for (size_t i = 2; i < 12; ++i) {
      std::set<size_t> reached = {i};
      for (size_t from = i; from < 12; ++from) {
        if (reached.count(from) > 0) reached.insert(read_by[from].begin(), read_by[from].end());
      }
      bool wanted = false;
      for (size_t result : results) wanted = wanted || reached.count(result) > 0;
      if (wanted) expected.push_back(lines[i - 2]);
    }
    EXPECT_EQ(LinesAfter(maker.function), expected) << "seed " << seed;
  }
}

TEST(RemoveDeadNodes, LeavesAModelThatNeedsAllItsNodesAsItIs) {
  Module module = SmallClassifier();
  const std::string before = EverythingOf(module, sbp::Mesh());
  Apply(RemoveDeadNodes, ContextOf(""), &module);
  EXPECT_EQ(EverythingOf(module, sbp::Mesh()), before);
}

}  // namespace
}  // namespace weir::compiler
