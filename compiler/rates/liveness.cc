#include "compiler/rates/liveness.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/rates/play.h"
#include "compiler/rates/waits.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr int64_t kVisitsMax = 20'000'000;  // of all plays that look for a repair
constexpr size_t kCircleShown = 8;
constexpr size_t kRepairsShown = 3;

int64_t TokensOfIteration(const TimedGraph& graph, const TimedGraph::Register& reg) {
  return graph.actors[reg.producer.actor].acts / reg.producer.period * reg.producer.tokens;
}

// More slots than this change nothing within an iteration or the next one.
int64_t MostSlots(const TimedGraph& graph, RegisterId reg) {
  const TimedGraph::Register& r = graph.registers[reg];
  const int64_t enough = std::max(r.slots, 2 * TokensOfIteration(graph, r) + r.initial_tokens);
  return r.slots_max > 0 ? std::min(enough, r.slots_max) : enough;
}

// Returns the registers of the circle whose slots are waited for and may grow, the cheapest first.
std::vector<RegisterId> Growable(const TimedGraph& graph, const std::vector<Wait>& circle,
                                 const std::map<RegisterId, int64_t>& grown) {
  std::set<std::pair<int64_t, RegisterId>> found;
  for (const Wait& wait : circle) {
    if (wait.kind != Wait::Kind::kSlot) continue;
    const auto now = grown.find(wait.reg);
    if ((now == grown.end() ? graph.registers[wait.reg].slots : now->second) >=
        MostSlots(graph, wait.reg))
      continue;
    found.insert({graph.registers[wait.reg].bytes, wait.reg});
  }
  std::vector<RegisterId> registers;
  for (const auto& [bytes, reg] : found) registers.push_back(reg);
  return registers;
}

class RepairSearch {
 public:
  RepairSearch(const TimedGraph& graph, const Play& stopped) : graph_(graph), stopped_(stopped) {}

  void Find(Deadlock* deadlock) {
    std::map<RegisterId, int64_t> best;
    int64_t best_bytes = -1;
    for (RegisterId reg : Growable(graph_, stopped_.BlockedCircle(), {})) {
      const int64_t bytes = graph_.registers[reg].bytes;
      if (best_bytes >= 0 && bytes >= best_bytes) break;
      std::map<RegisterId, int64_t> grown = {{reg, MostSlots(graph_, reg)}};
      if (!Lives(grown)) continue;
      Shrink(reg, &grown);
      const int64_t added = bytes * (grown[reg] - graph_.registers[reg].slots);
      if (best_bytes >= 0 && added >= best_bytes) continue;
      best = grown;
      best_bytes = added;
    }
    if (best.empty()) best = FindSeveral();
    for (const auto& [reg, slots] : best) {
      deadlock->repairs.push_back({reg, slots});
      deadlock->repair_bytes += graph_.registers[reg].bytes * (slots - graph_.registers[reg].slots);
    }
  }

 private:
  bool Lives(const std::map<RegisterId, int64_t>& grown) {
    if (num_visits_ > kVisitsMax) return false;
    Play play = stopped_;
    for (const auto& [reg, slots] : grown) play.GrowSlots(reg, slots);
    const bool lives = play.Run();
    num_visits_ +=
        play.num_visits() - stopped_.num_visits() + static_cast<int64_t>(graph_.actors.size());
    return lives;
  }

  // Finds the fewest slots of `reg` with which the graph is live, with the other registers as they
  // are.
  void Shrink(RegisterId reg, std::map<RegisterId, int64_t>* grown) {
    int64_t dead = graph_.registers[reg].slots - 1, live = (*grown)[reg];
    while (dead + 1 < live) {
      (*grown)[reg] = dead + (live - dead) / 2;
      (Lives(*grown) ? live : dead) = (*grown)[reg];
    }
    (*grown)[reg] = live;
  }

  // Opens circle after circle at its cheapest register, and then takes back the slots that were too
  // many.
  std::map<RegisterId, int64_t> FindSeveral() {
    Play play = stopped_;
    std::map<RegisterId, int64_t> grown;
    while (!play.Run()) {
      const std::vector<RegisterId> registers = Growable(graph_, play.BlockedCircle(), grown);
      if (registers.empty() || num_visits_ + play.num_visits() > kVisitsMax) return {};
      const RegisterId reg = registers.front();
      int64_t& slots = grown.emplace(reg, graph_.registers[reg].slots).first->second;
      // The number of added slots doubles each time, so that a large count is found soon. The way
      // back is exact.
      slots = std::min(MostSlots(graph_, reg),
                       slots + std::max<int64_t>(1, slots - graph_.registers[reg].slots));
      play.GrowSlots(reg, slots);
    }
    num_visits_ += play.num_visits();
    std::vector<RegisterId> registers;
    for (const auto& [reg, slots] : grown) registers.push_back(reg);
    std::sort(registers.begin(), registers.end(), [&](RegisterId a, RegisterId b) {
      return graph_.registers[a].bytes > graph_.registers[b].bytes;
    });
    for (RegisterId reg : registers) Shrink(reg, &grown);
    std::erase_if(grown,
                  [&](const auto& one) { return one.second == graph_.registers[one.first].slots; });
    return grown;
  }

  const TimedGraph& graph_;
  const Play& stopped_;
  int64_t num_visits_ = 0;
};

std::string Bytes(int64_t bytes) {
  if (bytes < 10'000) return absl::StrCat(bytes, " bytes");
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  double value = static_cast<double>(bytes) / 1024;
  for (; value >= 1000 && unit < 4; ++unit) value /= 1024;
  return absl::StrCat(static_cast<double>(static_cast<int64_t>(value * 10 + 0.5)) / 10, " ",
                      kUnits[unit]);
}

std::string Slots(int64_t slots) { return absl::StrCat(slots, slots == 1 ? " slot" : " slots"); }

std::string WhatFor(const TimedGraph& graph, const Deadlock::Link& link, ActorId next) {
  const std::string name = absl::StrCat("`", graph.actors[next].name, "`");
  if (link.kind == Deadlock::Link::Kind::kOrder) {
    const TimedGraph::Order& order = graph.orders[link.order];
    const bool joint = order.kind == TimedGraph::Order::Kind::kJoint;
    std::string how = joint ? "starts only together with " : "comes after ";
    if (order.delay == -1) how = "comes only after the next act of ";
    if (order.delay < -1)
      how = absl::StrCat("comes only after the act ", -order.delay, " further on of ");
    return absl::StrCat(how, name, order.why.empty() ? "" : " (", order.why,
                        order.why.empty() ? "" : ")");
  }
  const TimedGraph::Register& reg = graph.registers[link.reg];
  if (link.kind == Deadlock::Link::Kind::kToken)
    return absl::StrCat("needs `", reg.name, "` from ", name);
  return absl::StrCat("needs a free slot of `", reg.name, "` (it has ", reg.slots, "), held until ",
                      name, " has acted");
}

std::string RepairText(const TimedGraph& graph, const Deadlock& deadlock) {
  std::vector<std::string> texts;
  const size_t shown =
      deadlock.repairs.size() > kRepairsShown + 1 ? kRepairsShown : deadlock.repairs.size();
  for (size_t i = 0; i < shown; ++i) {
    const Deadlock::Repair& repair = deadlock.repairs[i];
    const TimedGraph::Register& reg = graph.registers[repair.reg];
    texts.push_back(
        absl::StrCat("give `", reg.name, "` ", Slots(repair.slots), " instead of ", reg.slots));
  }
  if (shown < deadlock.repairs.size())
    texts.push_back(
        absl::StrCat("and more to ", deadlock.repairs.size() - shown, " other registers"));
  return absl::StrCat(absl::StrJoin(texts, ", "), " (", Bytes(deadlock.repair_bytes), " more)");
}

}  // namespace

Liveness CheckLiveness(const TimedGraph& graph) {
  Liveness result;
  Play play(graph);
  result.live = play.Run();
  if (result.live) return result;
  for (const Wait& wait : play.BlockedCircle()) {
    Deadlock::Link link;
    link.reg = wait.reg;
    link.order = wait.order;
    if (wait.kind == Wait::Kind::kSlot) link.kind = Deadlock::Link::Kind::kSlot;
    if (wait.kind == Wait::Kind::kOrder || wait.kind == Wait::Kind::kJoint)
      link.kind = Deadlock::Link::Kind::kOrder;
    result.deadlock.actors.push_back(wait.waiter);
    result.deadlock.links.push_back(link);
  }
  RepairSearch(graph, play).Find(&result.deadlock);
  return result;
}

absl::Status DeadlockError(const TimedGraph& graph, const Deadlock& deadlock,
                           const std::string& remedy) {
  const size_t size = deadlock.actors.size();
  if (size == 0) return absl::InternalError("a deadlock without a circle of waits");
  std::vector<std::string> parts;
  std::set<std::string> orders;
  for (size_t i = 0; i < size; ++i) {
    const Deadlock::Link& link = deadlock.links[i];
    if (link.kind == Deadlock::Link::Kind::kOrder) orders.insert(graph.orders[link.order].why);
    if (size > kCircleShown && i >= kCircleShown / 2 && i < size - kCircleShown / 2) {
      if (i == kCircleShown / 2)
        parts.push_back(absl::StrCat("and so on through ", size - kCircleShown, " more"));
      continue;
    }
    const std::string what = WhatFor(graph, link, deadlock.actors[(i + 1) % size]);
    parts.push_back(i == 0 ? absl::StrCat("`", graph.actors[deadlock.actors[0]].name, "` ", what)
                           : absl::StrCat(i + 1 == size ? "which again " : "which ", what));
  }
  std::string hint;
  if (!deadlock.repairs.empty()) {
    hint =
        absl::StrCat(RepairText(graph, deadlock),
                     remedy.empty() ? "" : absl::StrCat("; ", remedy, " gives each what it needs"));
  } else if (!orders.empty()) {
    hint =
        absl::StrCat("change an order, as no number of slots helps: ", absl::StrJoin(orders, ", "));
  } else {
    hint =
        "put an initial token on one of these registers, or allow more slots, as no allowed number "
        "of slots helps";
  }
  return Rejected({"W0494", absl::StrCat("actor `", graph.actors[deadlock.actors[0]].name, "`"),
                   "a plan in which everyone gets to act",
                   absl::StrCat("a circle of waits: ", absl::StrJoin(parts, ", ")), hint});
}

}  // namespace weir::compiler
