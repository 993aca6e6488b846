// Times under differences that cost least: minimises
//   sum over charges of  cost * max(0, time(to) - time(from) - free)     subject to     time(to) >=
//   time(from) + weight.
// The dual is a min-cost circulation: differences are arcs without limit, charges arcs back with
// capacity `cost`. It is solved by the network simplex method (Dantzig 1951; strongly feasible
// trees, Cunningham 1976), which starts from the tree of the latest times, and goes on from its
// last tree when differences are added. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "compiler/rates/difference_system.h"

namespace weir::compiler {

struct Charge {
  int from = -1;
  int to = -1;
  int64_t free = 0;
  int64_t cost = 0;  // >= 0; the sum of all costs stays below 2^62
};

class CheapestTimes {
 public:
  CheapestTimes(int num_nodes, std::span<const Difference> differences,
                std::span<const Charge> charges);

  // False: no times keep the differences. Exact in integers.
  bool Solve();
  // After Solve() was true: the smallest is 0.
  std::vector<int64_t> times() const;
  // Must be kept from the next Solve() on.
  void Add(std::span<const Difference> differences);

 private:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  // A spanning tree of arcs with times on its nodes, for which all tree arcs are tight; flow on the
  // arcs.
  struct Arc {
    int from = -1;
    int to = -1;
    int64_t weight = 0;  // kept: time(to) >= time(from) + weight
    int64_t capacity = 0;
    int64_t flow = 0;
    int state = 1;  // 1: flow 0, 0: in the tree, -1: flow at capacity
  };
  struct Node {
    int64_t time = 0;
    int parent = -1;
    int arc = -1;     // to or from the parent
    bool up = false;  // the arc goes to the parent
    int depth = 0;
    int first_child = -1;
    int next = -1;  // siblings
    int previous = -1;
  };

  bool Start();
  void Saturate();
  // How much more may flow.
  static int64_t Room(const Arc& arc, bool forward) {
    if (!forward) return arc.flow;
    return arc.capacity == kUnlimited ? kUnlimited : arc.capacity - arc.flow;
  }
  bool Pivot(int entering);  // false: for ever
  void Hang(int node, int parent, int leaving, int entering);
  void Attach(int node, int parent, int arc, bool up);
  void Detach(int node);

  const int num_nodes_;
  const int root_;
  std::vector<Arc> arcs_;    // num_nodes_ to the root, then differences and charges
  std::vector<Node> nodes_;  // empty before the first Solve
  std::vector<int> stack_;
};

}  // namespace weir::compiler
