#include "compiler/rhythm/stage_twins.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace weir::compiler {
namespace {

// A one-to-one relation between numbers of the first stage and numbers of its twin.
class Pairs {
 public:
  // Returns whether `a` and `b` belong together. Numbers that were not seen before do from now on.
  bool Match(int64_t a, int64_t b) { return Keeps(&to_, a, b) && Keeps(&back_, b, a); }
  bool Has(int64_t a) const { return to_.count(a) > 0; }

 private:
  static bool Keeps(std::map<int64_t, int64_t>* pairs, int64_t a, int64_t b) {
    return pairs->emplace(a, b).first->second == b;
  }
  std::map<int64_t, int64_t> to_, back_;
};

// Returns the stages of an item: two for a boxing between stages, else one.
std::pair<int64_t, int64_t> StagesOf(const Module& module, const ProgramItem& item) {
  const int from = item.inputs.empty() ? item.outputs[0] : item.inputs[0];
  const int to = item.outputs.empty() ? item.inputs[0] : item.outputs[0];
  const int64_t stage = module.values[to].stage;
  return {item.kind == ItemKind::kBoxing ? module.values[from].stage : stage, stage};
}

// Returns the host of each device of two stages, numbered in the order in which they come.
std::vector<int64_t> HostsOf(const sbp::Places& places, int64_t stage, int64_t other) {
  std::map<int64_t, int64_t> numbers;
  std::vector<int64_t> hosts;
  for (const int64_t place : {stage, other}) {
    for (const RankId rank : places.ranks(place))
      hosts.push_back(
          numbers.emplace(places.HostOf(rank), static_cast<int64_t>(numbers.size())).first->second);
  }
  return hosts;
}

// Compares two stages item by item: everything that the lowering of a rank reads, but names.
class Comparison {
 public:
  Comparison(const LogicalPlan& plan, int64_t first, int64_t stage)
      : plan_(plan), module_(plan.module), first_(first), stage_(stage) {}

  std::optional<StageTwin> Run(const std::vector<int>& of_first, const std::vector<int>& of_stage) {
    if (of_first.size() != of_stage.size() ||
        !(plan_.places.mesh(first_) == plan_.places.mesh(stage_)))
      return std::nullopt;
    StageTwin twin{first_, stage_, {}};
    twin.items.resize(module_.items.size());
    for (size_t i = 0; i < of_first.size(); ++i) {
      if (!ItemsMatch(module_.items[of_first[i]], module_.items[of_stage[i]])) return std::nullopt;
      const int64_t of_first_stage = OtherStage(of_first[i], first_),
                    other = OtherStage(of_stage[i], stage_);
      if (!MessagesMatch(of_first_stage, other))
        return std::nullopt;  // other messages, though of the same tensors
      twin.items[of_first[i]] = {of_stage[i], other};
    }
    if (!ShapesMatch(twin)) return std::nullopt;
    return twin;
  }

 private:
  // Returns the other stage of a boxing between stages, and else `stage`.
  int64_t OtherStage(int item, int64_t stage) const {
    const auto [from, to] = StagesOf(module_, module_.items[item]);
    return from == stage ? to : from;
  }

  // Between unequal meshes, hosts decide who sends.
  bool MessagesMatch(int64_t of_first, int64_t of_stage) {
    const sbp::Places& places = plan_.places;
    if (places.mesh(of_first) != places.mesh(of_stage)) return false;
    if (places.has_equal_meshes()) return true;
    const auto [known, is_new] = hosts_match_.try_emplace({of_first, of_stage}, false);
    if (is_new)
      known->second = HostsOf(places, first_, of_first) == HostsOf(places, stage_, of_stage);
    return known->second;
  }

  bool ItemsMatch(const ProgramItem& a, const ProgramItem& b) {
    return a.kind == b.kind && a.phase == b.phase && a.function == b.function &&
           a.frequency == b.frequency && PartsMatch(a, b) && a.states.size() == b.states.size() &&
           ListsMatch(a.inputs, b.inputs) && ListsMatch(a.outputs, b.outputs);
  }

  // The parts of calls say which calls share memory. Those of other items set slots alone, which
  // the shape of each stage has.
  bool PartsMatch(const ProgramItem& a, const ProgramItem& b) {
    const bool in_pass = a.phase == PhaseKind::kForward || a.phase == PhaseKind::kBackward ||
                         a.phase == PhaseKind::kWeightGradient;
    return a.kind != ItemKind::kCall || !in_pass || parts_.Match(a.part, b.part);
  }

  bool ListsMatch(const std::vector<int>& a, const std::vector<int>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](int of_a, int of_b) { return ValuesMatch(of_a, of_b); });
  }

  bool ValuesMatch(int a, int b) {
    if (a < 0 || b < 0) return a == b;
    const bool known = values_.Has(a);
    if (!values_.Match(a, b)) return false;
    if (known) return true;
    const ProgramValue &of_a = module_.values[a], &of_b = module_.values[b];
    return of_a.type == of_b.type && of_a.layout == of_b.layout &&
           (of_a.stage == first_) == (of_b.stage == stage_) && of_a.frequency == of_b.frequency &&
           (of_a.variable < 0) == (of_b.variable < 0) && of_a.delay == of_b.delay &&
           (of_a.gradient_of < 0) == (of_b.gradient_of < 0);
  }

  // Compares the work of all ranks of both stages: the same stations, with the same readers.
  bool ShapesMatch(const StageTwin& twin) const {
    const StageShape &a = plan_.stages[first_], &b = plan_.stages[stage_];
    return std::equal(a.graph.actors.begin(), a.graph.actors.end(), b.graph.actors.begin(),
                      b.graph.actors.end(),
                      [&](const RankActor& of_a, const RankActor& of_b) {
                        return twin.Of(of_a.station) == of_b.station && of_a.chunks == of_b.chunks;
                      }) &&
           std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                      [&](const auto& of_a, const auto& of_b) {
                        return twin.Of(of_a.first.first) == of_b.first.first &&
                               of_a.first.second == of_b.first.second &&
                               ReadersMatch(twin, of_a.second.readers, of_b.second.readers);
                      }) &&
           a.gate.has_value() == b.gate.has_value();
  }

  static bool ReadersMatch(const StageTwin& twin, const std::vector<Station>& a,
                           const std::vector<Station>& b) {
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(),
        [&](const Station& of_a, const Station& of_b) { return twin.Of(of_a) == of_b; });
  }

  const LogicalPlan& plan_;
  const Module& module_;
  const int64_t first_, stage_;
  Pairs values_, parts_;
  // By the other stages of two items.
  std::map<std::pair<int64_t, int64_t>, bool> hosts_match_;
};

}  // namespace

std::vector<std::vector<StageTwin>> FindStageTwins(const LogicalPlan& plan) {
  const auto num_stages = static_cast<size_t>(plan.places.size());
  std::vector<std::vector<int>> items(num_stages);
  for (size_t i = 0; i < plan.module.items.size(); ++i) {
    const auto [from, to] = StagesOf(plan.module, plan.module.items[i]);
    items[to].push_back(static_cast<int>(i));
    if (from != to) items[from].push_back(static_cast<int>(i));
  }
  std::vector<std::vector<StageTwin>> twins(num_stages);
  for (size_t stage = 0; stage < num_stages; ++stage) {
    bool found = false;
    for (size_t first = 0; first <= stage && !found; ++first) {
      if (first < stage && twins[first].empty()) continue;
      std::optional<StageTwin> twin =
          Comparison(plan, static_cast<int64_t>(first), static_cast<int64_t>(stage))
              .Run(items[first], items[stage]);
      found = twin.has_value();
      if (found) twins[first].push_back(*std::move(twin));
    }
  }
  return twins;
}

}  // namespace weir::compiler
