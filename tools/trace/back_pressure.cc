#include "tools/trace/back_pressure.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/trace/register_fill.h"
#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

using NodeKey = std::pair<std::string, std::string>;  // function of all layers, phase

// Returns the depth of each actor: the longest way from an actor without inputs, over registers
// that do not lag. Actors on a circle without a lag, which no plan has, keep the depth 0.
IdVector<RecordedActorId, int32_t> DepthsOf(const RecordedRun& run) {
  IdVector<RecordedActorId, int32_t> depth(run.actors.size(), 0), missing(run.actors.size(), 0);
  const auto leads_on = [](const RecordedRegister& r) {
    return r.producer.actor.has_value() && r.initial_tokens == 0;
  };
  for (const RecordedRegister& r : run.registers) {
    if (!leads_on(r)) continue;
    for (const RecordedPortRef& consumer : r.consumers) ++missing[consumer.actor];
  }
  std::vector<RecordedActorId> next;
  for (const RecordedActorId a : run.actors.ids()) {
    if (missing[a] == 0) next.push_back(a);
  }
  for (size_t i = 0; i < next.size(); ++i) {
    const RecordedActorId a = next[i];
    for (const RecordedPort& port : run.actors[a].outputs) {
      const RecordedRegister& r = run.registers[port.register_index];
      if (!leads_on(r)) continue;
      for (const RecordedPortRef& consumer : r.consumers) {
        depth[consumer.actor] = std::max(depth[consumer.actor], depth[a] + 1);
        if (--missing[consumer.actor] == 0) next.push_back(consumer.actor);
      }
    }
  }
  return depth;
}

// A Gate is the last thing that an act needed of one kind: when it came, and in which register.
struct Gate {
  int64_t at = 0;
  RecordedRegisterId register_index;
  RecordedActorId other;  // that sent the token or gave up the slot
};

// The times of a node on a rank, in the order in which one state hides the next.
enum State : size_t { kBusy, kBlocked, kReady, kStarved, kNumStates };
using Intervals = std::vector<std::pair<int64_t, int64_t>>;
using StateTimes = std::array<Intervals, kNumStates>;

// Sorts intervals, and joins those that touch.
void Join(Intervals* intervals) {
  std::sort(intervals->begin(), intervals->end());
  size_t last = 0;
  for (size_t i = 1; i < intervals->size(); ++i) {
    const auto [begin, end] = (*intervals)[i];
    if (begin <= (*intervals)[last].second) {
      (*intervals)[last].second = std::max((*intervals)[last].second, end);
    } else {
      (*intervals)[++last] = {begin, end};
    }
  }
  if (!intervals->empty()) intervals->resize(last + 1);
}

class PressureFinder {
 public:
  explicit PressureFinder(const RecordedRun& run)
      : run_(run), first_(run.times.FirstSteady()), begin_(run.times.steps[first_].begin) {}

  BackPressure Find() && {
    MakeNodes();
    for (const RecordedActorId a : run_.actors.ids()) AddActor(a);
    for (const RecordedRegisterId r : run_.registers.ids()) AddRegister(r);
    FinishNodes();
    FinishEdges();
    Place();
    FindCulprit();
    return std::move(result_);
  }

 private:
  struct EdgeSum {
    PressureEdge edge;
    double in_use = 0, full = 0;
    std::map<std::string, double> waits, bytes;  // by register of all layers
  };

  double steps() const { return static_cast<double>(run_.times.steps.size() - first_); }
  int64_t Inside(int64_t from, int64_t to) const { return run_.times.Inside(from, to, first_); }

  NodeKey KeyOf(const RecordedActor& actor) const {
    const std::string name = LayerFamily(actor.function);
    return {by_kind_ ? name.substr(0, name.find(' ')) : name, actor.phase};
  }
  void MakeNodes() {
    std::set<NodeKey> keys;
    for (const RecordedActor& actor : run_.actors) keys.insert(KeyOf(actor));
    by_kind_ = keys.size() > kPressureNodesMax;
    std::map<NodeKey, int32_t> numbers;
    std::vector<std::set<RankId>> ranks;
    for (const RecordedActor& actor : run_.actors) {
      const auto [at, is_new] =
          numbers.try_emplace(KeyOf(actor), static_cast<int32_t>(result_.nodes.size()));
      if (is_new) {
        PressureNode& node = result_.nodes.emplace_back();
        std::tie(node.name, node.phase) = at->first;
        ranks.emplace_back();
      }
      node_of_.push_back(at->second);
      ++result_.nodes[at->second].actors;
      ranks[at->second].insert(run_.ranks[actor.rank_index].rank);
    }
    for (size_t i = 0; i < ranks.size(); ++i)
      result_.nodes[i].ranks.assign(ranks[i].begin(), ranks[i].end());
  }

  EdgeSum& EdgeBetween(RecordedActorId from, RecordedActorId to) {
    EdgeSum& sum = edges_[{node_of_[from], node_of_[to]}];
    sum.edge.from = node_of_[from];
    sum.edge.to = node_of_[to];
    return sum;
  }

  // Keeps the later of two gates.
  static void Raise(Gate gate, Gate* last) {
    if (!last->register_index.has_value() || gate.at > last->at) *last = gate;
  }
  // Returns when a token or slot was there: where the record has a wait for it, at its end.
  static int64_t ArrivalOf(const RecordedAct& act, RecordedAct::Wait wait,
                           RecordedRegisterId register_index, const RecordedAct& cause) {
    const bool waited = act.wait == wait && act.waited_register == register_index;
    return waited ? std::max(cause.end, act.ready) : cause.end;
  }
  Gate LastInput(const RecordedActor& actor, const RecordedAct& act) const {
    Gate last;
    for (const RecordedPort& port : actor.inputs) {
      if (!port.Begins(act.number)) continue;
      const RecordedAct* cause =
          run_.Publisher(port.register_index, RecordedRun::TokenTaken(port, act.number));
      if (cause == nullptr) continue;
      Raise({ArrivalOf(act, RecordedAct::Wait::kInput, port.register_index, *cause),
             port.register_index, cause->actor},
            &last);
    }
    return last;
  }
  Gate LastSlot(const RecordedActor& actor, const RecordedAct& act) const {
    Gate last;
    for (const RecordedPort& port : actor.outputs) {
      if (!port.Begins(act.number)) continue;
      const RecordedAct* cause =
          run_.LastReader(port.register_index, run_.TokenInTheWay(port, act.number));
      if (cause == nullptr) continue;
      Raise({ArrivalOf(act, RecordedAct::Wait::kCredit, port.register_index, *cause),
             port.register_index, cause->actor},
            &last);
    }
    return last;
  }

  void AddActor(RecordedActorId id) {
    const RecordedActor& actor = run_.actors[id];
    StateTimes& times = times_[{node_of_[id], actor.rank_index}];
    int64_t free = begin_;
    for (size_t i = 0; i < actor.acts.size(); ++i) {
      const RecordedAct* act = run_.Act(id, actor.first_act + static_cast<int64_t>(i));
      if (act == nullptr) continue;
      const Gate input = LastInput(actor, *act), slot = LastSlot(actor, *act);
      const int64_t start = std::max(free, act->start);
      const int64_t fed =
          input.register_index.has_value() ? std::clamp(input.at, free, start) : free;
      const int64_t room = slot.register_index.has_value() ? std::clamp(slot.at, fed, start) : fed;
      const int64_t starved = Inside(free, fed), blocked = Inside(fed, room);
      if (free < fed) times[kStarved].emplace_back(free, fed);
      if (fed < room) times[kBlocked].emplace_back(fed, room);
      if (room < start) times[kReady].emplace_back(room, start);
      if (act->start < act->end) times[kBusy].emplace_back(act->start, act->end);
      result_.nodes[node_of_[id]].busy_ns_per_step +=
          static_cast<double>(Inside(act->start, act->end)) / steps();
      if (starved > 0)
        AddWait(input.other, id, input.register_index, &PressureEdge::starved_ns_per_step, starved);
      if (blocked > 0)
        AddWait(id, slot.other, slot.register_index, &PressureEdge::blocked_ns_per_step, blocked);
      const RecordedRank& rank = run_.ranks[actor.rank_index];
      const int64_t idle_since = std::clamp(rank.FreeSince(*act, begin_), fed, room);
      if (const int64_t held_up = Inside(idle_since, room); held_up > 0) {
        EdgeBetween(id, slot.other).edge.held_up_ns_per_step +=
            static_cast<double>(held_up) / steps();
      }
      free = std::max(free, act->end);
    }
  }
  void AddWait(RecordedActorId from, RecordedActorId to, RecordedRegisterId register_index,
               double PressureEdge::*sum, int64_t ns) {
    EdgeSum& edge = EdgeBetween(from, to);
    const double per_step = static_cast<double>(ns) / steps();
    edge.edge.*sum += per_step;
    edge.waits[LayerFamily(run_.registers[register_index].family)] += per_step;
  }

  void AddRegister(RecordedRegisterId id) {
    const RecordedRegister& r = run_.registers[id];
    if (!r.producer.actor.has_value() || r.consumers.empty()) return;
    const RegisterFill fill = FindFill(run_, id);
    const int64_t end = run_.times.steps.back().end;
    double in_use = 0, window = 0;
    for (size_t i = 0; i < fill.changes.size(); ++i) {
      const int64_t until = i + 1 < fill.changes.size() ? fill.changes[i + 1].at : end;
      const double ns = static_cast<double>(run_.times.Inside(fill.changes[i].at, until, 0));
      in_use += ns * static_cast<double>(fill.changes[i].in_use);
      window += ns;
    }
    window = std::max(window, 1.0);
    const double tokens = run_.TokensPerStep(r);
    std::set<int32_t> seen;  // a node that reads a register twice gets it once
    for (const RecordedPortRef& consumer : r.consumers) {
      if (!seen.insert(node_of_[consumer.actor]).second) continue;
      EdgeSum& sum = EdgeBetween(r.producer.actor, consumer.actor);
      ++sum.edge.registers;
      sum.edge.bytes_per_step += tokens * static_cast<double>(r.bytes);
      sum.in_use += in_use / window / static_cast<double>(r.slots);
      sum.full += static_cast<double>(fill.full_ns) / window;
      sum.edge.lags = sum.edge.lags || r.initial_tokens > 0;
      sum.bytes[LayerFamily(r.family)] += tokens * static_cast<double>(r.bytes);
    }
  }

  void FinishNodes() {
    for (auto& [key, times] : times_) {
      PressureNode& node = result_.nodes[key.first];
      double PressureNode::*const shares[] = {&PressureNode::busy, &PressureNode::blocked,
                                              &PressureNode::ready, &PressureNode::starved};
      Intervals all;
      int64_t hidden = 0;
      for (size_t state = 0; state < kNumStates; ++state) {
        all.insert(all.end(), times[state].begin(), times[state].end());
        Join(&all);
        int64_t ns = 0;
        for (const auto& [begin, end] : all) ns += Inside(begin, end);
        node.*shares[state] += static_cast<double>(ns - hidden);
        hidden = ns;
      }
    }
    for (PressureNode& node : result_.nodes) {
      const double all = node.busy + node.starved + node.blocked + node.ready;
      if (all <= 0) continue;
      for (double* share : {&node.busy, &node.starved, &node.blocked, &node.ready}) *share /= all;
    }
  }
  void FinishEdges() {
    for (auto& [key, sum] : edges_) {
      PressureEdge& edge = sum.edge;
      const double count = static_cast<double>(std::max<int64_t>(1, edge.registers));
      edge.slots_in_use = sum.in_use / count;
      edge.full = sum.full / count;
      const auto& by_name = sum.waits.empty() ? sum.bytes : sum.waits;
      edge.worst =
          std::max_element(by_name.begin(), by_name.end(), [](const auto& a, const auto& b) {
            return a.second < b.second;
          })->first;
      result_.edges.push_back(edge);
    }
    std::stable_sort(result_.edges.begin(), result_.edges.end(),
                     [](const PressureEdge& a, const PressureEdge& b) {
                       return std::tie(a.held_up_ns_per_step, a.bytes_per_step) >
                              std::tie(b.held_up_ns_per_step, b.bytes_per_step);
                     });
  }

  // Gives each node a row by the longest way to it. Nodes are in the order of their first actor,
  // and an edge against this order leads back, so there are no circles.
  void Place() {
    const IdVector<RecordedActorId, int32_t> depth = DepthsOf(run_);
    std::vector<int32_t> least(result_.nodes.size(), std::numeric_limits<int32_t>::max());
    for (const RecordedActorId a : run_.actors.ids())
      least[node_of_[a]] = std::min(least[node_of_[a]], depth[a]);
    std::vector<int32_t> order;
    for (size_t i = 0; i < result_.nodes.size(); ++i) order.push_back(static_cast<int32_t>(i));
    const auto before = [&least](int32_t a, int32_t b) {
      return std::tie(least[a], a) < std::tie(least[b], b);
    };
    std::sort(order.begin(), order.end(), before);
    for (const int32_t node : order) {
      for (const PressureEdge& edge : result_.edges) {
        if (edge.from != node || edge.lags || !before(edge.from, edge.to)) continue;
        result_.nodes[edge.to].row =
            std::max(result_.nodes[edge.to].row, result_.nodes[node].row + 1);
      }
    }
    std::map<int32_t, int32_t> columns;  // by row
    for (const int32_t node : order)
      result_.nodes[node].column = columns[result_.nodes[node].row]++;
  }

  // Returns whether an edge holds its writers up for a part of the step that counts, mean over
  // them.
  bool HoldsUp(const PressureEdge& edge) const {
    const double step = static_cast<double>(run_.times.SumFrom(first_)) / steps();
    const double ranks = static_cast<double>(result_.nodes[edge.from].ranks.size());
    return edge.held_up_ns_per_step >= kHeldUpMin * step * ranks;
  }
  // Returns the edge from `node` that holds its writers up most and is not in the chain; -1: none.
  int32_t WorstFrom(int32_t node) const {
    for (size_t i = 0; i < result_.edges.size(); ++i) {
      const PressureEdge& edge = result_.edges[i];
      const auto number = static_cast<int32_t>(i);
      if (edge.from == node && edge.to != node && HoldsUp(edge) &&
          std::find(result_.chain.begin(), result_.chain.end(), number) == result_.chain.end())
        return number;
    }
    return -1;
  }
  void FindCulprit() {
    int32_t edge = !result_.edges.empty() && HoldsUp(result_.edges[0]) ? 0 : -1;
    while (edge >= 0) {
      result_.chain.push_back(edge);
      edge = WorstFrom(result_.edges[edge].to);
    }
  }

  const RecordedRun& run_;
  const size_t first_;
  const int64_t begin_;
  bool by_kind_ = false;  // a node for all functions of a kind
  IdVector<RecordedActorId, int32_t> node_of_;
  std::map<std::pair<int32_t, RecordedRankId>, StateTimes> times_;  // by node and rank
  std::map<std::pair<int32_t, int32_t>, EdgeSum> edges_;            // by nodes
  BackPressure result_;
};

}  // namespace

BackPressure FindBackPressure(const RecordedRun& run) { return PressureFinder(run).Find(); }

std::string PressureText(const BackPressure& pressure) {
  if (pressure.chain.empty()) {
    return absl::StrFormat(
        "no register holds its writers up: devices stand still for free slots for less than %.0f "
        "%% of a step",
        kHeldUpMin * 100);
  }
  const PressureEdge& culprit = pressure.edges[pressure.chain.back()];
  const PressureNode &writer = pressure.nodes[culprit.from], &reader = pressure.nodes[culprit.to];
  std::string text = absl::StrFormat(
      "register `%s` holds its writers up: `%s` (%s) stands still for %s a step for free slots, "
      "which `%s` (%s) holds",
      culprit.worst, writer.name, writer.phase, MillisecondsText(culprit.held_up_ns_per_step),
      reader.name, reader.phase);
  if (pressure.chain.size() > 1) {
    const PressureNode& first = pressure.nodes[pressure.edges[pressure.chain.front()].from];
    absl::StrAppend(&text, "; `", first.name, "` (", first.phase, ") waits in turn");
  }
  return text;
}

}  // namespace weir::trace
