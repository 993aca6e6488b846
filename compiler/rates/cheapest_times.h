// Finds the cheapest times under differences. Minimises
//   sum over charges of  cost * max(0, time(to) - time(from) - free)
//   subject to           time(to) >= time(from) + weight    for every difference.
// The dual is a min-cost circulation: a difference is an arc without limit, and a charge is an arc
// back with capacity `cost`. The network simplex method solves the dual (Dantzig 1951; strongly
// feasible trees, Cunningham 1976). The method starts from the tree of the latest times. After new
// differences the method continues from its last tree. Thread rule: one thread at a time.
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

  // Returns false if no times keep the differences. Exact in integers.
  bool Solve();
  // Returns the times after Solve() returned true. The smallest time is 0.
  std::vector<int64_t> times() const;
  // Adds differences, which all later calls of Solve() keep.
  void Add(std::span<const Difference> differences);

 private:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  // The state is a spanning tree of arcs, times on the nodes for which all tree arcs are tight, and
  // a flow on the arcs.
  struct Arc {
    int from = -1;
    int to = -1;
    int64_t weight = 0;  // constraint: time(to) >= time(from) + weight
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
  // Returns how much more may flow.
  static int64_t Room(const Arc& arc, bool forward) {
    if (!forward) return arc.flow;
    return arc.capacity == kUnlimited ? kUnlimited : arc.capacity - arc.flow;
  }
  bool Pivot(int entering);  // false: the flow can grow without limit
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
