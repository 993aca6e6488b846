#include "compiler/rates/cheapest_times.h"

#include <algorithm>
#include <cmath>

namespace weir::compiler {

CheapestTimes::CheapestTimes(int num_nodes, std::span<const Difference> differences,
                             std::span<const Charge> charges)
    : num_nodes_(num_nodes), root_(num_nodes) {
  arcs_.reserve(differences.size() + charges.size() + num_nodes);
  for (int node = 0; node < num_nodes_; ++node) arcs_.push_back({node, root_, 0, kUnlimited});
  Add(differences);
  for (const Charge& c : charges) {
    if (c.cost > 0 && c.from != c.to) arcs_.push_back({c.to, c.from, -c.free, c.cost});
  }
}

void CheapestTimes::Add(std::span<const Difference> differences) {
  for (const Difference& d : differences) arcs_.push_back({d.from, d.to, d.weight, kUnlimited});
}

bool CheapestTimes::Solve() {
  if (nodes_.empty() && !Start()) return false;
  // The search looks at arcs in blocks. The most violated arc of a block enters.
  const size_t first = static_cast<size_t>(num_nodes_), num_arcs = arcs_.size() - first;
  const size_t block =
      std::max<size_t>(64, static_cast<size_t>(std::sqrt(static_cast<double>(num_arcs))));
  size_t next = first, clean = 0;
  while (clean < num_arcs) {
    int64_t worst = 0;
    size_t entering = 0;
    for (size_t i = 0; i < block && clean < num_arcs; ++i, ++clean) {
      const Arc& arc = arcs_[next];
      const int64_t violation =
          arc.state * (nodes_[arc.from].time + arc.weight - nodes_[arc.to].time);
      if (violation > worst) {
        worst = violation;
        entering = next;
      }
      next = next + 1 == arcs_.size() ? first : next + 1;
    }
    if (worst == 0) continue;
    if (!Pivot(static_cast<int>(entering))) return false;
    clean = 0;
  }
  return true;
}

std::vector<int64_t> CheapestTimes::times() const {
  std::vector<int64_t> result(num_nodes_);
  int64_t least = 0;
  for (int node = 0; node < num_nodes_; ++node) {
    result[node] = nodes_[node].time;
    least = node == 0 ? result[node] : std::min(least, result[node]);
  }
  for (int64_t& time : result) time -= least;
  return result;
}

// Builds the tree of the latest times.
bool CheapestTimes::Start() {
  std::vector<Difference> back;
  std::vector<int> arc_of;  // by entry of `back`
  for (size_t a = num_nodes_; a < arcs_.size(); ++a) {
    if (arcs_[a].capacity != kUnlimited) continue;
    back.push_back({arcs_[a].to, arcs_[a].from, arcs_[a].weight});
    arc_of.push_back(static_cast<int>(a));
  }
  DifferenceSystem latest(num_nodes_, std::move(back));
  if (!latest.Solve()) return false;
  nodes_.assign(num_nodes_ + 1, Node());
  for (int node = 0; node < num_nodes_; ++node) {
    const int tight = latest.tight()[node];
    const int arc = tight < 0 ? node : arc_of[tight];
    nodes_[node].time = -latest.times()[node];
    arcs_[arc].state = 0;
    Attach(node, arcs_[arc].to, arc, true);
  }
  Saturate();
  return true;
}

// Sets depths, and sets flow on charges that the tree alone can send back.
void CheapestTimes::Saturate() {
  // An order of nodes in which each subtree is contiguous.
  std::vector<int> order, stack = {root_};
  std::vector<int> begin(num_nodes_ + 1, 0), end(num_nodes_ + 1, 0);
  while (!stack.empty()) {
    const int node = stack.back();
    stack.pop_back();
    begin[node] = static_cast<int>(order.size());
    order.push_back(node);
    for (int child = nodes_[node].first_child; child >= 0; child = nodes_[child].next) {
      nodes_[child].depth = nodes_[node].depth + 1;
      stack.push_back(child);
    }
  }
  std::vector<int> size(num_nodes_ + 1, 1);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    end[*it] = begin[*it] + size[*it];
    if (nodes_[*it].parent >= 0) size[nodes_[*it].parent] += size[*it];
  }
  std::vector<int64_t> excess(num_nodes_ + 1, 0);
  for (Arc& arc : arcs_) {
    if (arc.capacity == kUnlimited) continue;
    const bool above = begin[arc.from] <= begin[arc.to] && begin[arc.to] < end[arc.from];
    if (!above || nodes_[arc.from].time + arc.weight <= nodes_[arc.to].time) continue;
    arc.flow = arc.capacity;
    arc.state = -1;
    excess[arc.to] += arc.capacity;
    excess[arc.from] -= arc.capacity;
  }
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if (*it == root_) continue;
    arcs_[nodes_[*it].arc].flow = excess[*it];
    excess[nodes_[*it].parent] += excess[*it];
  }
}

bool CheapestTimes::Pivot(int entering) {
  Arc& in = arcs_[entering];
  // Flow goes first -> second by the entering arc, up from second and down to first.
  const int first = in.state > 0 ? in.from : in.to;
  const int second = in.state > 0 ? in.to : in.from;
  int64_t amount = in.capacity;
  int leaving = -1;  // the node under the leaving arc
  bool on_first = false;
  int a = first, b = second;
  while (a != b) {
    // Among equal arcs the last in the direction of the flow, seen from the top, leaves. That keeps
    // the tree strongly feasible.
    if (nodes_[a].depth >= nodes_[b].depth) {
      const int64_t room = Room(arcs_[nodes_[a].arc], !nodes_[a].up);
      if (room < amount) {
        amount = room;
        leaving = a;
        on_first = true;
      }
      a = nodes_[a].parent;
    } else {
      b = nodes_[b].parent;
    }
  }
  const int join = a;
  for (b = second; b != join; b = nodes_[b].parent) {
    const int64_t room = Room(arcs_[nodes_[b].arc], nodes_[b].up);
    if (room <= amount && room != kUnlimited) {
      amount = room;
      leaving = b;
      on_first = false;
    }
  }
  if (amount == kUnlimited) return false;  // the differences have a circle that sums to more than 0
  if (amount > 0) {
    in.flow += in.state > 0 ? amount : -amount;
    for (a = first; a != join; a = nodes_[a].parent)
      arcs_[nodes_[a].arc].flow += nodes_[a].up ? -amount : amount;
    for (b = second; b != join; b = nodes_[b].parent)
      arcs_[nodes_[b].arc].flow += nodes_[b].up ? amount : -amount;
  }
  if (leaving < 0) {
    in.state = -in.state;
    return true;
  }
  Arc& out = arcs_[nodes_[leaving].arc];
  out.state = out.flow == 0 ? 1 : -1;
  in.state = 0;
  Hang(on_first ? first : second, on_first ? second : first, leaving, entering);
  return true;
}

// Moves the subtree of `leaving`, which contains `node`, under `parent` by the entering arc.
void CheapestTimes::Hang(int node, int parent, int leaving, int entering) {
  const int top = node;
  int arc = entering;
  bool up = arcs_[entering].from == node;
  while (true) {
    const Node before = nodes_[node];
    Detach(node);
    Attach(node, parent, arc, up);
    if (node == leaving) break;
    parent = node;
    arc = before.arc;
    up = !before.up;
    node = before.parent;
  }
  const Arc& in = arcs_[entering];
  const int64_t time =
      in.from == top ? nodes_[in.to].time - in.weight : nodes_[in.from].time + in.weight;
  const int64_t shift = time - nodes_[top].time;
  stack_.assign(1, top);
  while (!stack_.empty()) {
    Node& n = nodes_[stack_.back()];
    stack_.pop_back();
    n.time += shift;
    n.depth = nodes_[n.parent].depth + 1;
    for (int child = n.first_child; child >= 0; child = nodes_[child].next) stack_.push_back(child);
  }
}

void CheapestTimes::Attach(int node, int parent, int arc, bool up) {
  Node& n = nodes_[node];
  n.parent = parent;
  n.arc = arc;
  n.up = up;
  n.previous = -1;
  n.next = nodes_[parent].first_child;
  if (n.next >= 0) nodes_[n.next].previous = node;
  nodes_[parent].first_child = node;
}

void CheapestTimes::Detach(int node) {
  const Node& n = nodes_[node];
  (n.previous >= 0 ? nodes_[n.previous].next : nodes_[n.parent].first_child) = n.next;
  if (n.next >= 0) nodes_[n.next].previous = n.previous;
}

}  // namespace weir::compiler
