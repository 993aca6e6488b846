#include "compiler/rates/difference_system.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace weir::compiler {

DifferenceSystem::DifferenceSystem(int num_nodes, std::vector<Difference> arcs)
    : num_nodes_(num_nodes), arcs_(std::move(arcs)), times_(num_nodes, 0), tight_(num_nodes, -1) {
  first_out_.assign(num_nodes_ + 1, 0);
  for (const Difference& arc : arcs_) ++first_out_[arc.from + 1];
  std::partial_sum(first_out_.begin(), first_out_.end(), first_out_.begin());
  out_.resize(arcs_.size());
  std::vector<int> next(first_out_.begin(), first_out_.end() - 1);
  for (size_t a = 0; a < arcs_.size(); ++a) out_[next[arcs_[a].from]++] = static_cast<int>(a);
  Order();
  marks_.assign((num_nodes_ + 63) / 64, 0);
}

void DifferenceSystem::Order() {
  std::vector<int> before(num_nodes_, 0);
  for (const Difference& arc : arcs_) {
    if (arc.weight > 0) ++before[arc.to];
  }
  node_at_.clear();
  node_at_.reserve(num_nodes_);
  for (int node = 0; node < num_nodes_; ++node) {
    if (before[node] == 0) node_at_.push_back(node);
  }
  for (size_t i = 0; i < node_at_.size(); ++i) {
    for (int o = first_out_[node_at_[i]]; o < first_out_[node_at_[i] + 1]; ++o) {
      const Difference& arc = arcs_[out_[o]];
      if (arc.weight > 0 && --before[arc.to] == 0) node_at_.push_back(arc.to);
    }
  }
  place_.assign(num_nodes_, -1);
  for (size_t i = 0; i < node_at_.size(); ++i) place_[node_at_[i]] = static_cast<int>(i);
  // The remaining nodes lie on circles of positive weights.
  for (int node = 0; node < num_nodes_; ++node) {
    if (place_[node] >= 0) continue;
    place_[node] = static_cast<int>(node_at_.size());
    node_at_.push_back(node);
  }
  is_ordered_ = true;
}

void DifferenceSystem::Mark(int node) {
  const size_t word = static_cast<size_t>(place_[node]) / 64;
  marks_[word] |= uint64_t{1} << (place_[node] % 64);
  mark_front_ = std::min(mark_front_, word);
}

// Returns the first marked node and unmarks it; -1 if there is none.
int DifferenceSystem::Next() {
  while (mark_front_ < marks_.size() && marks_[mark_front_] == 0) ++mark_front_;
  if (mark_front_ == marks_.size()) return -1;
  const int bit = std::countr_zero(marks_[mark_front_]);
  marks_[mark_front_] &= marks_[mark_front_] - 1;
  return node_at_[mark_front_ * 64 + bit];
}

bool DifferenceSystem::SetTimes(std::vector<int64_t> times) {
  for (const Difference& arc : arcs_) {
    if (times[arc.to] < times[arc.from] + arc.weight) return false;
  }
  times.resize(num_nodes_);
  times_ = std::move(times);
  return true;
}

bool DifferenceSystem::Solve() {
  if (!is_ordered_) Order();
  std::fill(times_.begin(), times_.end(), 0);
  std::fill(tight_.begin(), tight_.end(), -1);
  circle_.clear();
  for (int node = 0; node < num_nodes_; ++node) Mark(node);
  int64_t until_check = 2 * static_cast<int64_t>(num_nodes_) + 1;
  for (int node = Next(); node >= 0; node = Next()) {
    ++num_visits_;
    for (int o = first_out_[node]; o < first_out_[node + 1]; ++o) {
      const Difference& arc = arcs_[out_[o]];
      if (times_[node] + arc.weight <= times_[arc.to]) continue;
      times_[arc.to] = times_[node] + arc.weight;
      tight_[arc.to] = out_[o];
      if (arc.to == node) {  // a circle of one
        circle_ = {out_[o]};
        std::fill(marks_.begin(), marks_.end(), 0);
        return false;
      }
      Mark(arc.to);
    }
    if (--until_check > 0) continue;
    until_check = num_nodes_;
    if (!FindCircle()) continue;
    std::fill(marks_.begin(), marks_.end(), 0);
    return false;
  }
  return true;
}

// Finds a circle of tight arcs. Such a circle exists only if its weights sum to more than 0.
bool DifferenceSystem::FindCircle() {
  std::vector<int> seen(num_nodes_, -1);  // by node: the walk that saw it
  for (int first = 0; first < num_nodes_; ++first) {
    int node = first;
    while (seen[node] < 0) {
      seen[node] = first;
      if (tight_[node] < 0) break;
      node = arcs_[tight_[node]].from;
    }
    if (tight_[node] < 0 || seen[node] != first) continue;
    int walk = node;
    do {
      circle_.push_back(tight_[walk]);
      walk = arcs_[tight_[walk]].from;
    } while (walk != node);
    std::reverse(circle_.begin(), circle_.end());
    return true;
  }
  return false;
}

bool DifferenceSystem::Tighten(std::span<const std::pair<int, int64_t>> changes,
                               int64_t visits_max) {
  std::vector<std::pair<int, int64_t>> weights_before, times_before;
  int target = -1;
  for (const auto& [arc, weight] : changes) {
    weights_before.emplace_back(arc, arcs_[arc].weight);
    arcs_[arc].weight = weight;
    target = arcs_[arc].to;
  }
  const auto raise = [&](int arc) {
    const Difference& a = arcs_[arc];
    if (times_[a.from] + a.weight <= times_[a.to]) return false;
    times_before.emplace_back(a.to, times_[a.to]);
    times_[a.to] = times_[a.from] + a.weight;
    Mark(a.to);
    return true;
  };
  bool kept = true;
  for (const auto& [arc, weight] : changes) {
    raise(arc);
    if (arcs_[arc].from == arcs_[arc].to && weight > 0) kept = false;
  }
  // Only the new weights can close a circle of more than 0. Such a circle would raise the target
  // again.
  int64_t visits = 0;
  for (int node = Next(); node >= 0 && kept; node = kept ? Next() : -1) {
    if (++visits > visits_max) kept = false;
    for (int o = first_out_[node]; kept && o < first_out_[node + 1]; ++o) {
      if (raise(out_[o]) && arcs_[out_[o]].to == target) kept = false;
    }
  }
  num_visits_ += visits;
  if (kept) return true;
  while (Next() >= 0) {
  }
  for (auto it = times_before.rbegin(); it != times_before.rend(); ++it)
    times_[it->first] = it->second;
  for (const auto& [arc, weight] : weights_before) arcs_[arc].weight = weight;
  return false;
}

}  // namespace weir::compiler
