// Times under constraints of the form  time(to) >= time(from) + weight. The system finds the
// earliest times, or a circle of constraints that no times can keep (the weights of the circle sum
// to more than 0). Nodes and arcs are plain places in lists; in a timed graph the first nodes are
// the actors. Not thread-safe; copies are independent.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace weir::compiler {

struct Difference {
  int from = -1;
  int to = -1;
  int64_t weight = 0;
};

class DifferenceSystem {
 public:
  DifferenceSystem(int num_nodes, std::vector<Difference> arcs);

  const std::vector<Difference>& arcs() const { return arcs_; }
  // The new weight takes effect with the next Solve or Tighten.
  void SetWeight(int arc, int64_t weight) {
    is_ordered_ &= (arcs_[arc].weight > 0) == (weight > 0);
    arcs_[arc].weight = weight;
  }

  // Finds the least times >= 0. Returns false if there is a circle.
  bool Solve();
  // Sets the times to `times` if `times` keep all arcs; else returns false.
  bool SetTimes(std::vector<int64_t> times);
  const std::vector<int64_t>& times() const { return times_; }
  // Returns the arcs of a circle after Solve() returned false. Each arc starts at the end of the
  // arc before, and the weights sum to more than 0.
  const std::vector<int>& circle() const { return circle_; }
  // Returns for each node the arc that sets the node's time, or -1, after Solve() returned true.
  const std::vector<int>& tight() const { return tight_; }

  // Sets the weights that `changes` names, all of arcs to one node, if the system can still be
  // kept. Then times() is the least solution that is not below the times before. If the system
  // cannot be kept, or the check visits more than `visits_max` nodes, Tighten changes nothing and
  // returns false. Precondition: times() keeps all arcs.
  bool Tighten(std::span<const std::pair<int, int64_t>> changes, int64_t visits_max);
  int64_t num_visits() const { return num_visits_; }

 private:
  void Order();
  void Mark(int node);
  int Next();
  bool FindCircle();

  int num_nodes_ = 0;
  std::vector<Difference> arcs_;
  std::vector<int> first_out_;  // by node, into out_
  std::vector<int> out_;        // arcs by their `from`
  std::vector<int64_t> times_;
  std::vector<int> tight_;
  std::vector<int> circle_;
  // Nodes to visit, by place in an order in which arcs of positive weight go forward.
  std::vector<int> place_;
  std::vector<int> node_at_;
  bool is_ordered_ = false;  // by the weights of now
  std::vector<uint64_t> marks_;
  size_t mark_front_ = 0;
  int64_t num_visits_ = 0;
};

}  // namespace weir::compiler
