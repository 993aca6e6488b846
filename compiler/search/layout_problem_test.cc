// The problem of random small functions, solved and compared with every choice.
#include "compiler/search/layout_problem.h"

#include <random>

#include "compiler/search/known_rules.h"
#include "compiler/search/rule_list.h"
#include "compiler/testing/small_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::ElementsAre;

// A chain of products, relus and sums over [batch, wide] and [batch, deep], up to `nodes` nodes.
Function RandomFunction(uint64_t seed, int nodes) {
  std::mt19937_64 random(seed);
  FunctionMaker f("block");
  std::vector<ops::ValueId> wide{f.Input("x", "f32[batch, wide]")}, deep;
  const auto one_of = [&random](const std::vector<ops::ValueId>& values) {
    return values[random() % values.size()];
  };
  ops::ValueId last = wide[0];
  for (int n = 0; n < nodes; ++n) {
    const std::string name = "n" + std::to_string(n);
    const uint64_t kind = random() % 4;
    if (kind == 0 || (kind == 1 && deep.empty())) {
      const ops::ValueId w = f.Parameter("w" + name, "f32[wide, deep]");
      deep.push_back(last = f.Node(name, "matmul", {one_of(wide), w}));
    } else if (kind == 1) {
      const ops::ValueId w = f.Parameter("w" + name, "f32[deep, wide]");
      wide.push_back(last = f.Node(name, "matmul", {one_of(deep), w}));
    } else if (kind == 2) {
      std::vector<ops::ValueId>& of = deep.empty() || random() % 2 == 0 ? wide : deep;
      of.push_back(last = f.Node(name, "relu", {one_of(of)}));
    } else {
      std::vector<ops::ValueId>& of = deep.empty() || random() % 2 == 0 ? wide : deep;
      of.push_back(last = f.Node(name, "add", {one_of(of), one_of(of)}));
    }
  }
  f.Return(last);
  return std::move(f.function);
}

double LeastByTrial(const MinSumProblem& problem) {
  std::vector<int> choice(problem.unary.size(), 0);
  double least = problem.CostOf(choice);
  while (true) {
    size_t v = 0;
    while (v < choice.size() && ++choice[v] == problem.choices(static_cast<int>(v)))
      choice[v++] = 0;
    if (v == choice.size()) return least;
    least = std::min(least, problem.CostOf(choice));
  }
}

double NumChoices(const MinSumProblem& problem) {
  double product = 1;
  for (const std::vector<double>& unary : problem.unary)
    product *= static_cast<double>(unary.size());
  return product;
}

struct Made {
  PeakCosts costs;
  std::unique_ptr<BoxingCosts> boxings;
  LayoutProblemOptions options;
  explicit Made(const std::string& mesh, DevicePeaks peaks = {}) : costs(std::move(peaks)) {
    options.mesh = MeshOf(mesh);
    boxings = std::make_unique<BoxingCosts>(&costs, sbp::PipelinePlaces(options.mesh), 0);
    options.costs = &costs;
    options.boxings = boxings.get();
    options.dims = TestDims();
  }
};

TEST(LayoutProblem, TheSolutionOfRandomFunctionsIsTheBestOfAllChoices) {
  int on_two_axes = 0, on_one_axis = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const bool two = seed % 3 == 0;
    Made made(two ? "a=2,b=2" : "a=2");
    made.options.zero_stage = static_cast<int>(seed % 4);
    made.options.zero_axis = 0;
    made.options.micro_batches = 1 + static_cast<double>(seed % 2);
    const Function function = RandomFunction(seed, two ? 2 : 2 + static_cast<int>(seed % 5));
    const auto problem = MakeLayoutProblem({{&function, 1, 3}}, made.options);
    ASSERT_TRUE(problem.ok()) << problem.status();
    if (NumChoices(problem->problem) > 2e6) continue;
    ++(two ? on_two_axes : on_one_axis);
    const MinSumSolution solution = SolveMinSum(problem->problem);
    EXPECT_TRUE(solution.exact);
    EXPECT_LT(solution.cost, kForbidden);
    EXPECT_NEAR(problem->problem.CostOf(solution.choice), LeastByTrial(problem->problem),
                1e-9 * solution.cost)
        << "seed " << seed << "\n"
        << ToText(function, made.options.mesh);
  }
  EXPECT_GT(on_one_axis, 40);
  EXPECT_GT(on_two_axes, 15);
}

// y = relu(x w1) w2, whose weights are far larger than its activations.
Function Pair() {
  FunctionMaker f("block");
  const ops::ValueId x = f.Input("x", "f32[batch, wide]");
  const ops::ValueId h = f.Node("h", "matmul", {x, f.Parameter("w1", "f32[wide, deep]")});
  f.Return(f.Node("y", "matmul", {f.Node("r", "relu", {h}), f.Parameter("w2", "f32[deep, wide]")}));
  return std::move(f.function);
}

RuleList Solved(const Function& function, const Made& made) {
  const std::vector<FunctionCalls> calls{{&function, 1, 1}};
  const auto problem = MakeLayoutProblem(calls, made.options);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return FindRules(*problem, calls, SolveMinSum(problem->problem).choice, made.options.mesh);
}

TEST(FindRules, AFewSamplesOnSlowLinksSplitTheInnerDimension) {
  DevicePeaks peaks;
  peaks.kernel_ns = peaks.act_ns = peaks.within_host.latency_ns = 0;
  peaks.memory_bytes_per_second = 1e6;  // what a device holds whole is dear
  Made made("a=2", peaks);
  const Function function = Pair();
  EXPECT_THAT(Solved(function, made), ElementsAre(RuleEntry{"deep", "a"}));
}

TEST(FindRules, AxesAreChosenTogether) {
  DevicePeaks peaks;
  peaks.kernel_ns = peaks.act_ns = peaks.within_host.latency_ns = 0;
  peaks.memory_bytes_per_second = 1e6;
  Made made("a=2,b=4", peaks);
  const Function function = Pair();
  // Four samples and a product of eight: the two axes do not both take the batch.
  const RuleList rules = Solved(function, made);
  EXPECT_THAT(rules, ::testing::Contains(::testing::Field(&RuleEntry::dim, "deep")));
}

TEST(KnownRules, HaveEachRoleOnEachAxis) {
  Made made("a=2,b=2");
  const Function function = Pair();
  const std::vector<FunctionCalls> calls{{&function, 1, 1}};
  const auto problem = MakeLayoutProblem(calls, made.options);
  ASSERT_TRUE(problem.ok());
  const DimRoles roles = RolesOf(*problem, "batch", {});
  EXPECT_THAT(roles.inner, ElementsAre("deep"));
  EXPECT_THAT(roles.others, ElementsAre("wide"));
  const std::vector<NamedRules> known = KnownRules(roles, calls, made.options.mesh, -1, 100);
  EXPECT_EQ(known.size(), 4u);  // data and tensor, for each axis
  // ZeRO splits states over b, which may then split no tensor of the model.
  EXPECT_EQ(KnownRules(roles, calls, made.options.mesh, 1, 100).size(), 6u);
  EXPECT_EQ(known[1].name, "a data, b tensor");
  EXPECT_THAT(known[1].rules, ElementsAre(RuleEntry{"batch", "a"}, RuleEntry{"deep", "b"}));
}

}  // namespace
}  // namespace weir::compiler
