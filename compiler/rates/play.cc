#include "compiler/rates/play.h"

#include <algorithm>
#include <numeric>

namespace weir::compiler {

Play::Play(const TimedGraph& graph) : graph_(graph), waits_(AllWaits(graph)) {
  JoinUnits();
  std::vector<int> position(units_.size() + 1, 0);
  for (size_t w = 0; w < waits_.size(); ++w) {
    if (waits_[w].kind != Wait::Kind::kJoint) ++position[unit_of_[waits_[w].waiter] + 1];
  }
  std::partial_sum(position.begin(), position.end(), position.begin());
  waits_by_unit_.resize(position.back());
  sources_.resize(position.back());
  place_.assign(waits_.size(), -1);
  for (size_t u = 0; u < units_.size(); ++u) units_[u].first_wait = position[u];
  for (size_t w = 0; w < waits_.size(); ++w) {
    if (waits_[w].kind == Wait::Kind::kJoint) continue;
    Unit& unit = units_[unit_of_[waits_[w].waiter]];
    const Wait& wait = waits_[w];
    const bool plain = wait.waiter_port.period == 1 && wait.other_port.period == 1 &&
                       wait.waiter_port.tokens == 1 && wait.other_port.tokens == 1;
    place_[w] = unit.first_wait + unit.num_waits++;
    waits_by_unit_[place_[w]] = static_cast<int>(w);
    sources_[place_[w]] = {unit_of_[wait.other], plain, wait.lag};
  }
  for (ActorId a : graph_.actors.ids()) units_[unit_of_[a]].limit = graph_.actors[a].acts;
  for (size_t u = units_.size(); u > 0; --u) Enqueue(static_cast<int>(u - 1));
}

void Play::JoinUnits() {
  IdVector<ActorId, ActorId> parent;
  parent.reserve(graph_.actors.size());
  for (ActorId a : graph_.actors.ids()) parent.push_back(a);
  const auto find = [&](ActorId actor) {
    while (parent[actor] != actor) actor = parent[actor] = parent[parent[actor]];
    return actor;
  };
  for (const TimedGraph::Order& order : graph_.orders) {
    if (order.kind == TimedGraph::Order::Kind::kJoint)
      parent[find(order.before)] = find(order.after);
  }
  unit_of_.assign(graph_.actors.size(), -1);
  for (ActorId a : graph_.actors.ids()) {
    int& unit = unit_of_[find(a)];
    if (unit < 0) {
      unit = static_cast<int>(units_.size());
      units_.emplace_back();
    }
    unit_of_[a] = unit;
  }
}

void Play::Enqueue(int unit) {
  if (units_[unit].queued) return;
  units_[unit].queued = true;
  stack_.push_back(unit);
}

int64_t Play::ActsAllowed(const Wait& wait, int64_t other_done) const {
  const int64_t tokens = other_done / wait.other_port.period * wait.other_port.tokens + wait.lag;
  return tokens <= 0 ? 0 : tokens / wait.waiter_port.tokens * wait.waiter_port.period;
}

int64_t Play::ActsNeeded(const Wait& wait, int64_t done) const {
  const int64_t token =
      (done / wait.waiter_port.period + 1) * wait.waiter_port.tokens - 1 - wait.lag;
  return (FloorDiv(token, wait.other_port.tokens) + 1) * wait.other_port.period;
}

bool Play::Run() {
  while (!stack_.empty()) {
    const int unit = stack_.back();
    stack_.pop_back();
    units_[unit].queued = false;
    Visit(unit);
  }
  return std::all_of(units_.begin(), units_.end(),
                     [](const Unit& unit) { return unit.blocked_by < 0; });
}

void Play::Visit(int id) {
  Unit& unit = units_[id];
  if (unit.blocked_by >= 0 || unit.done >= unit.limit)
    return;  // still in another unit's list, or nothing to do
  while (unit.done < unit.limit) {
    ++num_visits_;
    int64_t allowed = unit.limit;
    int blocked_by = -1;
    for (int i = unit.first_wait; i < unit.first_wait + unit.num_waits; ++i) {
      const Source& source = sources_[i];
      const int64_t other_done = units_[source.unit].done;
      const int64_t acts = source.plain ? other_done + source.lag
                                        : ActsAllowed(waits_[waits_by_unit_[i]], other_done);
      if (acts >= allowed) continue;
      allowed = acts;
      blocked_by = i;
    }
    const bool moved = allowed > unit.done;
    unit.done = std::max(unit.done, allowed);
    if (moved) Wake(id);
    if (blocked_by < 0) continue;
    const int other = sources_[blocked_by].unit;
    if (other == id && moved) continue;  // the unit waits for itself, and has moved
    unit.blocked_by = waits_by_unit_[blocked_by];
    unit.needed = ActsNeeded(waits_[unit.blocked_by], unit.done);
    unit.next_waiting = units_[other].first_waiting;
    units_[other].first_waiting = id;
    if (units_[other].limit < unit.needed) {
      units_[other].limit = unit.needed;
      Enqueue(other);
    }
    return;
  }
}

void Play::Wake(int id) {
  int* link = &units_[id].first_waiting;
  while (*link >= 0) {
    Unit& waiting = units_[*link];
    if (waiting.needed > units_[id].done) {
      link = &waiting.next_waiting;
      continue;
    }
    const int woken = *link;
    *link = waiting.next_waiting;
    waiting.blocked_by = -1;
    Enqueue(woken);
  }
}

void Play::GrowSlots(RegisterId reg, int64_t slots) {
  for (size_t w = 0; w < waits_.size(); ++w) {
    if (waits_[w].kind != Wait::Kind::kSlot || waits_[w].reg != reg) continue;
    waits_[w].lag = sources_[place_[w]].lag = slots - graph_.registers[reg].initial_tokens;
    const int id = unit_of_[waits_[w].waiter];
    Unit& unit = units_[id];
    if (unit.blocked_by != static_cast<int>(w)) continue;
    int* link = &units_[unit_of_[waits_[w].other]].first_waiting;
    while (*link != id) link = &units_[*link].next_waiting;
    *link = unit.next_waiting;
    unit.blocked_by = -1;
    Enqueue(id);
  }
}

void Play::JointPath(ActorId from, ActorId to, std::vector<Wait>* circle) const {
  if (from == to) return;
  // The search is breadth first and starts from the end, so that the way back is the path forward.
  // The search serves only messages for people, so it may take long.
  IdVector<ActorId, int> towards(graph_.actors.size(), -1);
  std::vector<ActorId> reached = {to};
  for (size_t i = 0; i < reached.size(); ++i) {
    for (size_t w = 0; w < waits_.size(); ++w) {
      const Wait& wait = waits_[w];
      if (wait.kind != Wait::Kind::kJoint || wait.other != reached[i] || wait.waiter == to ||
          towards[wait.waiter] >= 0)
        continue;
      towards[wait.waiter] = static_cast<int>(w);
      reached.push_back(wait.waiter);
    }
  }
  for (ActorId actor = from; actor != to; actor = circle->back().other)
    circle->push_back(waits_[towards[actor]]);
}

std::vector<Wait> Play::BlockedCircle() const {
  std::vector<int> order(units_.size(), -1);  // of the walk, by unit
  std::vector<int> walk;
  const auto blocked = std::find_if(units_.begin(), units_.end(),
                                    [](const Unit& unit) { return unit.blocked_by >= 0; });
  if (blocked == units_.end()) return {};
  int unit = static_cast<int>(blocked - units_.begin());
  while (order[unit] < 0) {
    order[unit] = static_cast<int>(walk.size());
    walk.push_back(unit);
    unit = unit_of_[waits_[units_[unit].blocked_by].other];
  }
  std::vector<Wait> circle;
  for (size_t i = order[unit]; i < walk.size(); ++i) {
    const Wait& wait = waits_[units_[walk[i]].blocked_by];
    circle.push_back(wait);
    const int next = i + 1 < walk.size() ? walk[i + 1] : unit;
    JointPath(wait.other, waits_[units_[next].blocked_by].waiter, &circle);
  }
  return circle;
}

}  // namespace weir::compiler
