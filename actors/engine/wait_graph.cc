#include "actors/engine/wait_graph.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "actors/engine/holders.h"

namespace weir {
namespace {

constexpr int kRingLinesMax = 24;
constexpr char kHeldBy[] = ", held by ";
constexpr char kAnd[] = " and actor '";

std::string ToText(const WaitNode& node) {
  return node.actor.empty() ? absl::StrCat("rank ", node.rank)
                            : absl::StrCat("actor '", node.actor, "' on rank ", node.rank);
}

// Parses "actor 'x' on rank 1" or "rank 1". Names may hold quotes, so the search for the end runs
// backwards.
std::optional<WaitNode> ParseNode(absl::string_view text) {
  WaitNode node;
  if (absl::ConsumePrefix(&text, "actor '")) {
    const size_t end = text.rfind("' on rank ");
    if (end == absl::string_view::npos) return std::nullopt;
    node.actor = std::string(text.substr(0, end));
    text.remove_prefix(end + 4);  // the quote and " on"
  }
  if (!absl::ConsumePrefix(&text, node.actor.empty() ? "rank " : " rank ")) return std::nullopt;
  if (!absl::SimpleAtoi(text, &node.rank)) return std::nullopt;
  return node;
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
    if (rank->plan().rank != actor.rank || actor.id < 0) continue;
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
      wait.doing =
          absl::StrCat(machine.acts_done(), " of ", machine.limit(), " acts, ", Name(state));
      if (state == ActorState::kWaitsForInput || state == ActorState::kWaitsForCredit) {
        const int reg = machine.waits_for().value();
        absl::StrAppend(&wait.doing, " '", plan.registers[reg].name, "'");
        const bool token = state == ActorState::kWaitsForInput;
        wait.holders = NodesOf(
            token ? holders.ActorsOfToken(plan, reg) : holders.ActorsOfSlot(plan, reg), ranks);
      } else if (const int32_t before = rank->TurnBefore(actor.id); before >= 0) {
        absl::StrAppend(&wait.doing, ", its turn there");
        wait.holders = {{plan.rank, plan.actors[before].name}};
      }
    }
  }
  return waits;
}

std::string ToLine(const Wait& wait) {
  std::string text =
      absl::StrCat("rank ", wait.who.rank, " actor '", wait.who.actor, "': ", wait.doing);
  for (size_t i = 0; i < wait.holders.size(); ++i)
    absl::StrAppend(&text, i == 0 ? kHeldBy : " and ", ToText(wait.holders[i]));
  return text;
}

std::optional<Wait> ParseWait(absl::string_view line) {
  Wait wait;
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "rank ")) return std::nullopt;
  const size_t rank_end = line.find(" actor '"), name_end = line.find("': ");
  if (rank_end == absl::string_view::npos || name_end == absl::string_view::npos ||
      name_end < rank_end + 8 || !absl::SimpleAtoi(line.substr(0, rank_end), &wait.who.rank)) {
    return std::nullopt;
  }
  wait.who.actor = std::string(line.substr(rank_end + 8, name_end - rank_end - 8));
  line.remove_prefix(name_end + 3);
  if (!absl::StrContains(line, " acts, ")) return std::nullopt;
  const size_t held = line.rfind(kHeldBy);
  wait.doing = std::string(line.substr(0, held));
  if (held == absl::string_view::npos) return wait;
  absl::string_view rest = line.substr(held + sizeof(kHeldBy) - 1);
  while (!rest.empty()) {
    const size_t end = rest.find(kAnd);
    const std::optional<WaitNode> node = ParseNode(rest.substr(0, end));
    if (!node.has_value()) return std::nullopt;
    wait.holders.push_back(*node);
    rest = end == absl::string_view::npos ? absl::string_view()
                                          : rest.substr(end + 5);  // behind " and "
  }
  return wait;
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
      end == nullptr ? ", which could not say what it does" : absl::StrCat(": ", end->doing)));
  return lines;
}

}  // namespace weir
