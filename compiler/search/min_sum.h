// Finds the choices of many variables with the least sum of costs, where each cost depends on one
// variable or on two. The solution is exact: the solver first drops choices that another choice of
// the same variable never makes worse, then eliminates one variable after another. The work grows
// with the treewidth of the graph of pairs, which is 2 or 3 for a block of a transformer, and not
// with the number of variables.
//
// Not here: the meaning of the variables (layout_problem.h). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace weir::compiler {

// The cost of choices that do not go together. A sum with this cost is above any real sum.
inline constexpr double kForbidden = 1e30;

struct MinSumProblem {
  struct Pair {
    int a = 0, b = 0;          // variables, a != b
    std::vector<double> cost;  // of choice i of `a` and choice j of `b`, at i * choices(b) + j
  };
  std::vector<std::vector<double>> unary;  // by variable, by choice; no variable without a choice
  std::vector<Pair> pairs;

  int64_t choices(int variable) const { return static_cast<int64_t>(unary[variable].size()); }
  double CostOf(const std::vector<int>& choice) const;
};

struct MinSumOptions {
  // The most sums that the elimination of one variable may take. Beyond that the solver drops the
  // choices that look dearest, and the solution need not be the best.
  int64_t sums_max = 200'000'000;
};

struct MinSumSolution {
  std::vector<int> choice;  // by variable
  double cost = 0;
  bool exact = true;
  int64_t sums_largest = 0;  // of the elimination of one variable
};

// Returns a solution with the least cost. If several solutions have this cost, the result is always
// the same one of them. Precondition: `problem` has at least one choice for each variable.
MinSumSolution SolveMinSum(const MinSumProblem& problem, const MinSumOptions& options = {});

}  // namespace weir::compiler
