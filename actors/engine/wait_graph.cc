#include "actors/engine/wait_graph.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/engine/holders.h"

namespace weir::actors {
namespace {

constexpr int kRingLinesMax = 24;

std::string ToText(const WaitNode& node) {
  return node.actor.empty() ? absl::StrCat("rank ", node.rank)
                            : absl::StrCat("actor '", node.actor, "' on rank ", node.rank);
}

bool WaitsForRegister(const Wait& wait) {
  return wait.state == ActorState::kWaitsForInput || wait.state == ActorState::kWaitsForCredit;
}

// Returns "3 of 8 acts, waits for input 'loss'" or "3 of 8 acts, running".
std::string DoingText(const Wait& wait) {
  std::string text =
      absl::StrCat(wait.acts_done, " of ", wait.acts_wanted, " acts, ", Name(wait.state));
  if (WaitsForRegister(wait)) {
    absl::StrAppend(&text, " '", wait.register_name, "'");
  } else if (!wait.holders.empty()) {
    absl::StrAppend(&text, ", its turn there");
  }
  return text;
}

// A WaitGraph has one node for each actor.
class WaitGraph {
 public:
  explicit WaitGraph(const std::vector<Wait>& waits) {
    for (const Wait& wait : waits) waits_.emplace(wait.who, &wait);
  }

  // Returns the nodes of a ring, each waiting for the next; empty if there is none.
  std::vector<WaitNode> FindRing() const {
    std::map<WaitNode, int> state;  // 1: on the way, 2: leads to no ring
    for (const auto& [start, wait] : waits_) {
      std::vector<std::pair<WaitNode, size_t>> way = {{start, 0}};
      if (state[start] == 2) continue;
      state[start] = 1;
      while (!way.empty()) {
        auto& [node, next] = way.back();
        const auto at = waits_.find(node);
        if (at == waits_.end() || next == at->second->holders.size()) {
          state[node] = 2;
          way.pop_back();
          continue;
        }
        const WaitNode holder = at->second->holders[next++];
        if (state[holder] == 2) continue;
        if (state[holder] == 1) return RingFrom(way, holder);
        state[holder] = 1;
        way.emplace_back(holder, 0);
      }
    }
    return {};
  }

  // Returns, for each node that waits for no known node, the number of waits that lead to the node.
  std::map<WaitNode, int> Ends() const {
    std::map<WaitNode, int> ends;
    for (const auto& [start, wait] : waits_) {
      std::map<WaitNode, bool> seen;
      std::vector<WaitNode> todo = wait->holders;
      while (!todo.empty()) {
        const WaitNode node = todo.back();
        todo.pop_back();
        if (!seen.emplace(node, true).second) continue;
        const auto at = waits_.find(node);
        if (at == waits_.end() || at->second->holders.empty()) {
          ++ends[node];
        } else {
          todo.insert(todo.end(), at->second->holders.begin(), at->second->holders.end());
        }
      }
    }
    return ends;
  }

  const Wait* find(const WaitNode& node) const {
    const auto at = waits_.find(node);
    return at == waits_.end() ? nullptr : at->second;
  }
  size_t size() const { return waits_.size(); }

 private:
  static std::vector<WaitNode> RingFrom(const std::vector<std::pair<WaitNode, size_t>>& way,
                                        const WaitNode& first) {
    std::vector<WaitNode> ring;
    for (const auto& [node, next] : way) {
      if (!ring.empty() || node == first) ring.push_back(node);
    }
    return ring;
  }

  std::map<WaitNode, const Wait*> waits_;
};

// Returns the tokens of a slot's register that an actor here has read; -1 if the actor is
// elsewhere.
int64_t ReadBy(const Holders::Actor& actor, absl::Span<RankExecutor* const> ranks) {
  for (const RankExecutor* rank : ranks) {
    if (rank->plan().rank != actor.rank || !actor.id.has_value()) continue;
    const ActorMachine::Port& port = rank->machine(actor.id).input(actor.port);
    return port.next_token - (port.held_slot >= 0 ? port.tokens : 0);
  }
  return -1;
}

// If a slot has several readers, only the readers that are behind hold the slot.
std::vector<WaitNode> NodesOf(const std::vector<Holders::Actor>& actors,
                              absl::Span<RankExecutor* const> ranks) {
  std::vector<int64_t> read;
  for (const Holders::Actor& actor : actors)
    read.push_back(actors.size() > 1 ? ReadBy(actor, ranks) : -1);
  std::vector<WaitNode> nodes;
  for (size_t i = 0; i < actors.size(); ++i) {
    if (read[i] == *std::min_element(read.begin(), read.end()))
      nodes.push_back({actors[i].rank, actors[i].name});
  }
  return nodes;
}

}  // namespace

std::vector<Wait> ListWaits(absl::Span<RankExecutor* const> ranks) {
  std::vector<const Plan*> plans;
  for (const RankExecutor* rank : ranks) plans.push_back(&rank->plan());
  const Holders holders(plans);
  std::vector<Wait> waits;
  for (const RankExecutor* rank : ranks) {
    const Plan& plan = rank->plan();
    for (const PlanActor& actor : plan.actors) {
      const ActorMachine& machine = rank->machine(actor.id);
      const ActorState state = machine.state();
      if (state == ActorState::kDone) continue;
      Wait& wait = waits.emplace_back();
      wait.who = {plan.rank, actor.name};
      wait.acts_done = machine.acts_done();
      wait.acts_wanted = machine.limit();
      wait.state = state;
      if (WaitsForRegister(wait)) {
        const RegisterId reg = machine.waits_for();
        wait.register_name = plan.registers[reg].name;
        const bool token = state == ActorState::kWaitsForInput;
        wait.holders = NodesOf(
            token ? holders.ActorsOfToken(plan, reg) : holders.ActorsOfSlot(plan, reg), ranks);
      } else if (const ActorId before = rank->TurnBefore(actor.id); before.has_value()) {
        wait.holders = {{plan.rank, plan.actors[before].name}};
      }
    }
  }
  return waits;
}

std::string ToLine(const Wait& wait) {
  std::string text =
      absl::StrCat("rank ", wait.who.rank, " actor '", wait.who.actor, "': ", DoingText(wait));
  for (size_t i = 0; i < wait.holders.size(); ++i)
    absl::StrAppend(&text, i == 0 ? ", held by " : " and ", ToText(wait.holders[i]));
  return text;
}

std::vector<std::string> ExplainWaits(const std::vector<Wait>& waits) {
  const WaitGraph graph(waits);
  std::vector<std::string> lines;
  const std::vector<WaitNode> ring = graph.FindRing();
  if (!ring.empty()) {
    lines.push_back(absl::StrCat("a ring of ", ring.size(), " actors that wait for each other:"));
    for (size_t i = 0; i < ring.size(); ++i) {
      if (static_cast<int>(i) == kRingLinesMax) {
        lines.push_back(absl::StrCat("  and ", ring.size() - i, " more"));
        break;
      }
      Wait wait = *graph.find(ring[i]);
      wait.holders = {ring[(i + 1) % ring.size()]};
      lines.push_back(absl::StrCat("  ", ToLine(wait)));
    }
    return lines;
  }
  const std::map<WaitNode, int> ends = graph.Ends();
  const auto most = std::max_element(
      ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == ends.end()) return lines;
  const Wait* end = graph.find(most->first);
  lines.push_back(absl::StrCat(
      "in the end ", most->second, " of ", graph.size(), " actors wait for ", ToText(most->first),
      end == nullptr ? ", which could not say what it does" : absl::StrCat(": ", DoingText(*end))));
  return lines;
}

}  // namespace weir::actors
