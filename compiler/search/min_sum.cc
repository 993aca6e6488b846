#include "compiler/search/min_sum.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace weir::compiler {
namespace {

// A cost that depends on the choices of some variables. The last variable changes fastest.
struct Table {
  std::vector<int> scope;
  std::vector<double> cost;
};

class Solver {
 public:
  Solver(const MinSumProblem& problem, const MinSumOptions& options)
      : problem_(problem), options_(options), left_(problem.unary.size()) {
    const int n = static_cast<int>(problem.unary.size());
    pairs_of_.resize(n);
    for (int v = 0; v < n; ++v) {
      for (int i = 0; i < problem.choices(v); ++i) left_[v].push_back(i);
    }
    for (size_t p = 0; p < problem.pairs.size(); ++p) {
      pairs_of_[problem.pairs[p].a].push_back(static_cast<int>(p));
      pairs_of_[problem.pairs[p].b].push_back(static_cast<int>(p));
    }
  }

  MinSumSolution Run() {
    DropForbidden();
    while (DropDominated()) {
    }
    std::vector<int> order = Order();
    while (solution_.sums_largest > options_.sums_max) {
      solution_.exact = false;
      Narrow();
      order = Order();
    }
    Eliminate(order);
    return std::move(solution_);
  }

 private:
  double PairCost(const MinSumProblem::Pair& pair, int variable, int choice, int other) const {
    const int64_t width = problem_.choices(pair.b);
    return variable == pair.a ? pair.cost[choice * width + other]
                              : pair.cost[other * width + choice];
  }

  static int OtherOf(const MinSumProblem::Pair& pair, int variable) {
    return pair.a == variable ? pair.b : pair.a;
  }

  void DropForbidden() {
    for (size_t v = 0; v < left_.size(); ++v) {
      std::vector<int> kept;
      for (int choice : left_[v]) {
        if (problem_.unary[v][choice] < kForbidden) kept.push_back(choice);
      }
      if (!kept.empty()) left_[v] = std::move(kept);
    }
  }

  // Returns whether `choice` is never better than `other`, whatever the other variables choose.
  // Stops at the first sign that it may be.
  bool IsDominated(int variable, int choice, int other) const {
    double loss = problem_.unary[variable][choice] - problem_.unary[variable][other];
    for (int p : pairs_of_[variable]) {
      const MinSumProblem::Pair& pair = problem_.pairs[p];
      double least = std::numeric_limits<double>::infinity();
      for (int beside : left_[OtherOf(pair, variable)]) {
        least = std::min(least, PairCost(pair, variable, choice, beside) -
                                    PairCost(pair, variable, other, beside));
        if (loss + least < 0) return false;
      }
      loss += least;
    }
    return loss >= 0;
  }

  // Drops dominated choices. Some best solution is left after each drop.
  bool DropDominated() {
    bool dropped = false;
    for (size_t v = 0; v < left_.size(); ++v) {
      std::vector<int>& left = left_[v];
      for (size_t i = left.size(); i-- > 0;) {
        for (size_t j = 0; j < left.size(); ++j) {
          if (i == j || !IsDominated(static_cast<int>(v), left[i], left[j])) continue;
          left.erase(left.begin() + static_cast<int64_t>(i));
          dropped = true;
          break;
        }
      }
    }
    return dropped;
  }

  // Returns an order of elimination: next comes the variable with the least work. Sets
  // sums_largest, and `widest_` to the variables of that elimination.
  std::vector<int> Order() {
    const size_t n = left_.size();
    std::vector<std::set<int>> beside(n);
    for (const MinSumProblem::Pair& pair : problem_.pairs) {
      beside[pair.a].insert(pair.b);
      beside[pair.b].insert(pair.a);
    }
    std::vector<char> done(n, 0);
    std::vector<int> order;
    solution_.sums_largest = 0;
    while (order.size() < n) {
      int best = -1;
      double best_sums = 0;
      for (size_t v = 0; v < n; ++v) {
        if (done[v]) continue;
        double sums = static_cast<double>(left_[v].size());
        for (int other : beside[v]) sums *= static_cast<double>(left_[other].size());
        if (best >= 0 && sums >= best_sums) continue;
        best = static_cast<int>(v);
        best_sums = sums;
      }
      done[best] = 1;
      order.push_back(best);
      const int64_t sums = static_cast<int64_t>(std::min(best_sums, 1e18));
      if (sums > solution_.sums_largest) {
        solution_.sums_largest = sums;
        widest_.assign(beside[best].begin(), beside[best].end());
        widest_.push_back(best);
      }
      for (int a : beside[best]) {
        beside[a].erase(best);
        for (int b : beside[best]) {
          if (a != b) beside[a].insert(b);
        }
      }
    }
    return order;
  }

  // Drops the dearer half of the choices of the variable of the widest elimination that has most.
  void Narrow() {
    const int variable = *std::max_element(widest_.begin(), widest_.end(), [&](int a, int b) {
      return left_[a].size() < left_[b].size();
    });
    std::vector<std::pair<double, int>> bounds;
    for (int choice : left_[variable]) {
      double bound = problem_.unary[variable][choice];
      for (int p : pairs_of_[variable]) {
        const MinSumProblem::Pair& pair = problem_.pairs[p];
        const int other = OtherOf(pair, variable);
        double least = std::numeric_limits<double>::infinity();
        for (int beside : left_[other]) {
          least = std::min(
              least, PairCost(pair, variable, choice, beside) + problem_.unary[other][beside]);
        }
        bound += least;
      }
      bounds.emplace_back(bound, choice);
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.resize((bounds.size() + 1) / 2);
    left_[variable].clear();
    for (const auto& [bound, choice] : bounds) left_[variable].push_back(choice);
    std::sort(left_[variable].begin(), left_[variable].end());
  }

  std::vector<Table> StartingTables() const {
    std::vector<Table> tables;
    for (size_t v = 0; v < left_.size(); ++v) {
      Table table{{static_cast<int>(v)}, {}};
      for (int choice : left_[v]) table.cost.push_back(problem_.unary[v][choice]);
      tables.push_back(std::move(table));
    }
    for (const MinSumProblem::Pair& pair : problem_.pairs) {
      Table table{{pair.a, pair.b}, {}};
      for (int a : left_[pair.a]) {
        for (int b : left_[pair.b]) table.cost.push_back(PairCost(pair, pair.a, a, b));
      }
      tables.push_back(std::move(table));
    }
    return tables;
  }

  // Returns how far each variable of `scope` moves the position in `table`; 0: the table lacks it.
  std::vector<int64_t> StridesIn(const Table& table, const std::vector<int>& scope) const {
    std::vector<int64_t> strides(scope.size(), 0);
    int64_t stride = 1;
    for (size_t i = table.scope.size(); i-- > 0;) {
      for (size_t k = 0; k < scope.size(); ++k) {
        if (scope[k] == table.scope[i]) strides[k] = stride;
      }
      stride *= static_cast<int64_t>(left_[table.scope[i]].size());
    }
    return strides;
  }

  struct Elimination {
    int variable;
    std::vector<int> scope;     // of the table that is left
    std::vector<int32_t> best;  // by entry of that table: the position of the best choice in left_
  };

  void Eliminate(const std::vector<int>& order) {
    std::vector<Table> tables = StartingTables();
    std::vector<Elimination> steps;
    for (int variable : order) {
      std::vector<Table> used, rest;
      for (Table& table : tables) {
        const bool has = std::count(table.scope.begin(), table.scope.end(), variable) > 0;
        (has ? used : rest).push_back(std::move(table));
      }
      steps.push_back({variable, {}, {}});
      rest.push_back(MinOver(used, &steps.back()));
      tables = std::move(rest);
    }
    solution_.cost = 0;
    for (const Table& table : tables) solution_.cost += table.cost[0];
    std::vector<int64_t> place(left_.size(), 0);  // in left_
    for (size_t s = steps.size(); s-- > 0;) {
      int64_t entry = 0;
      for (int v : steps[s].scope) entry = entry * static_cast<int64_t>(left_[v].size()) + place[v];
      place[steps[s].variable] = steps[s].best[entry];
    }
    solution_.choice.resize(left_.size());
    for (size_t v = 0; v < left_.size(); ++v) solution_.choice[v] = left_[v][place[v]];
  }

  // Sums the tables, and takes the least over the choices of the step's variable.
  Table MinOver(const std::vector<Table>& tables, Elimination* step) const {
    std::set<int> scope;
    for (const Table& table : tables) scope.insert(table.scope.begin(), table.scope.end());
    scope.erase(step->variable);
    step->scope.assign(scope.begin(), scope.end());
    std::vector<int> all = step->scope;
    all.push_back(step->variable);
    std::vector<std::vector<int64_t>> strides;
    for (const Table& table : tables) strides.push_back(StridesIn(table, all));
    int64_t entries = 1;
    for (int v : step->scope) entries *= static_cast<int64_t>(left_[v].size());
    const size_t choices = left_[step->variable].size();
    Table out{step->scope, std::vector<double>(entries)};
    step->best.resize(entries);
    std::vector<int64_t> at(step->scope.size(), 0), base(tables.size(), 0);
    std::vector<double> sums(choices);
    for (int64_t entry = 0; entry < entries; ++entry) {
      std::fill(sums.begin(), sums.end(), 0);
      for (size_t t = 0; t < tables.size(); ++t) {
        const double* from = tables[t].cost.data() + base[t];
        const int64_t stride = strides[t].back();
        for (size_t c = 0; c < choices; ++c) sums[c] += from[static_cast<int64_t>(c) * stride];
      }
      const auto best = std::min_element(sums.begin(), sums.end());
      out.cost[entry] = *best;
      step->best[entry] = static_cast<int32_t>(best - sums.begin());
      for (size_t k = at.size(); k-- > 0;) {
        const bool carries = ++at[k] == static_cast<int64_t>(left_[step->scope[k]].size());
        for (size_t t = 0; t < tables.size(); ++t)
          base[t] += carries ? -strides[t][k] * (at[k] - 1) : strides[t][k];
        if (!carries) break;
        at[k] = 0;
      }
    }
    return out;
  }

  const MinSumProblem& problem_;
  const MinSumOptions options_;
  std::vector<std::vector<int>> left_;  // by variable: the choices that are left, ascending
  std::vector<std::vector<int>> pairs_of_;
  std::vector<int> widest_;
  MinSumSolution solution_;
};

}  // namespace

double MinSumProblem::CostOf(const std::vector<int>& choice) const {
  double cost = 0;
  for (size_t v = 0; v < unary.size(); ++v) cost += unary[v][choice[v]];
  for (const Pair& pair : pairs)
    cost += pair.cost[choice[pair.a] * choices(pair.b) + choice[pair.b]];
  return cost;
}

MinSumSolution SolveMinSum(const MinSumProblem& problem, const MinSumOptions& options) {
  return Solver(problem, options).Run();
}

}  // namespace weir::compiler
