#include "compiler/search/min_sum.h"

#include <random>

#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

MinSumProblem RandomProblem(uint64_t seed, int variables, int choices_max, double density) {
  std::mt19937_64 random(seed);
  const auto below = [&random](int n) { return static_cast<int>(random() % n); };
  MinSumProblem problem;
  for (int v = 0; v < variables; ++v) {
    std::vector<double>& unary = problem.unary.emplace_back(1 + below(choices_max));
    for (double& cost : unary) cost = below(20);
  }
  for (int a = 0; a < variables; ++a) {
    for (int b = a + 1; b < variables; ++b) {
      if (below(100) >= density * 100) continue;
      MinSumProblem::Pair pair{b, a, {}};
      pair.cost.resize(problem.choices(a) * problem.choices(b));
      for (double& cost : pair.cost) cost = below(10) == 0 ? kForbidden : below(30);
      problem.pairs.push_back(std::move(pair));
    }
  }
  return problem;
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

TEST(MinSum, RandomProblemsHaveTheCostOfTheBestOfAllChoices) {
  int solvable = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const MinSumProblem problem = RandomProblem(seed, 6, 5, 0.2 + 0.1 * (seed % 9));
    const MinSumSolution found = SolveMinSum(problem);
    const double least = LeastByTrial(problem);
    ASSERT_EQ(found.choice.size(), problem.unary.size());
    EXPECT_EQ(problem.CostOf(found.choice), least) << "seed " << seed;
    EXPECT_TRUE(found.exact);
    if (least < kForbidden) {
      ++solvable;
      EXPECT_EQ(found.cost, least) << "seed " << seed;
    }
  }
  EXPECT_GT(solvable, 200);
}

TEST(MinSum, AChainOfManyVariablesTakesNoMoreSumsThanOneOfFew) {
  MinSumProblem problem;
  for (int v = 0; v < 200; ++v) {
    // Neighbours that differ cost 1, and each choice costs 1 now and then, so no choice dominates.
    std::vector<double>& unary = problem.unary.emplace_back();
    for (int i = 0; i < 9; ++i) unary.push_back((v * 7 + i * 5) % 9 == 0 ? 3 : 0);
    if (v == 0) continue;
    MinSumProblem::Pair pair{v - 1, v, {}};
    for (int i = 0; i < 9; ++i) {
      for (int j = 0; j < 9; ++j) pair.cost.push_back(i == j ? 0 : 1);
    }
    problem.pairs.push_back(std::move(pair));
  }
  const MinSumSolution found = SolveMinSum(problem);
  EXPECT_EQ(problem.CostOf(found.choice), found.cost);
  EXPECT_LE(found.sums_largest, 81);
}

TEST(MinSum, TooWideAProblemIsNarrowedAndSaysSo) {
  const MinSumProblem problem = RandomProblem(7, 7, 8, 1);
  MinSumOptions options;
  options.sums_max = 60;
  const MinSumSolution narrow = SolveMinSum(problem, options);
  EXPECT_FALSE(narrow.exact);
  EXPECT_LE(narrow.sums_largest, 60);
  EXPECT_GE(problem.CostOf(narrow.choice), SolveMinSum(problem).cost);
}

}  // namespace
}  // namespace weir::compiler
