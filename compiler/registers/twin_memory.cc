#include "compiler/registers/twin_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "compiler/transfer/transfer_lowering.h"

namespace weir::compiler {
namespace {

// Returns the numbers of the devices of a place, in the order of their ranks.
std::vector<int> DevicesByRank(const sbp::Places& places, int64_t place) {
  const std::vector<RankId>& ranks = places.ranks(place);
  std::vector<int> devices(ranks.size());
  std::iota(devices.begin(), devices.end(), 0);
  std::sort(devices.begin(), devices.end(), [&](int a, int b) { return ranks[a] < ranks[b]; });
  return devices;
}

// Two names belong together if each stands for the other alone.
class NamePairs {
 public:
  bool Match(const std::string& a, const std::string& b) {
    return to_.emplace(a, b).first->second == b && back_.emplace(b, a).first->second == a;
  }
  std::map<std::string, std::string> Take() { return std::move(to_); }

 private:
  std::map<std::string, std::string> to_, back_;
};

class MemoryComparison {
 public:
  MemoryComparison(const LogicalPlan& plan, const StageTwin& twin)
      : plan_(plan), module_(plan.module), twin_(twin), transfers_(plan.settings.runtime) {}

  std::optional<std::map<std::string, std::string>> Run() {
    // Ranks send to their peers, and hear from them, in the order of the peers' ranks.
    if (DevicesByRank(plan_.places, twin_.first) != DevicesByRank(plan_.places, twin_.stage) ||
        !ActorsMatch() || !TensorsMatch() || !OrdersMatch())
      return std::nullopt;
    for (size_t i = 0; i < twin_.items.size(); ++i) {
      if (twin_.items[i].item < 0) continue;
      if (!ItemsMatch(static_cast<int>(i), twin_.items[i])) return std::nullopt;
    }
    return weights_.Take();
  }

 private:
  const StageShape& first() const { return plan_.stages[twin_.first]; }
  const StageShape& stage() const { return plan_.stages[twin_.stage]; }

  bool ActorsMatch() const {
    const IdVector<ActorId, RankActor>&a = first().graph.actors, &b = stage().graph.actors;
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(), [&](const RankActor& of_a, const RankActor& of_b) {
          return twin_.Of(of_a.station) == of_b.station && of_a.kind == of_b.kind &&
                 of_a.phase == of_b.phase && of_a.wave == of_b.wave && of_a.role == of_b.role &&
                 of_a.inputs == of_b.inputs && of_a.outputs == of_b.outputs &&
                 static_cast<const Rate&>(of_a) == static_cast<const Rate&>(of_b);
        });
  }

  bool TensorsMatch() const {
    const IdVector<TensorId, RankTensor>&a = first().graph.tensors, &b = stage().graph.tensors;
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(), [](const RankTensor& of_a, const RankTensor& of_b) {
          return of_a.bytes == of_b.bytes && of_a.tokens_per_step == of_b.tokens_per_step &&
                 of_a.every == of_b.every && of_a.side == of_b.side && of_a.delay == of_b.delay &&
                 of_a.paces == of_b.paces && (of_a.variable < 0) == (of_b.variable < 0) &&
                 (of_a.gradient_of < 0) == (of_b.gradient_of < 0);
        });
  }

  bool OrdersMatch() const {
    const auto stations_match = [&](const Station& a, const Station& b) {
      return twin_.Of(a) == b;
    };
    return std::equal(first().orders.begin(), first().orders.end(), stage().orders.begin(),
                      stage().orders.end(), [&](const MemoryOrder& a, const MemoryOrder& b) {
                        return a.lag == b.lag && stations_match(a.before, b.before) &&
                               std::equal(a.after.begin(), a.after.end(), b.after.begin(),
                                          b.after.end(), stations_match);
                      });
  }

  bool ItemsMatch(int item, const StageTwin::Item& place) {
    const ProgramItem &a = module_.items[item], &b = module_.items[place.item];
    for (size_t i = 0; i < a.states.size(); ++i) {
      if (a.states[i].layout != b.states[i].layout ||
          a.states[i].weight.empty() != b.states[i].weight.empty() ||
          !states_.Match(a.states[i].name, b.states[i].name))
        return false;
    }
    return WeightsMatch(a.inputs, b.inputs) && WeightsMatch(a.outputs, b.outputs) &&
           (a.kind != ItemKind::kBoxing || MovesMatch(a, b, place.other));
  }

  bool WeightsMatch(const std::vector<int>& a, const std::vector<int>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] < 0 || module_.values[a[i]].variable < 0) continue;
      const Variable& of_a = module_.variables[module_.values[a[i]].variable];
      const Variable& of_b = module_.variables[module_.values[b[i]].variable];
      if (!(of_a.type == of_b.type) || of_a.layout != of_b.layout ||
          !weights_.Match(of_a.name, of_b.name))
        return false;
    }
    return true;
  }

  // Two boxings of equal tensors may take other ways, if one stays inside a host.
  bool MovesMatch(const ProgramItem& a, const ProgramItem& b, int64_t other_of_stage) {
    const absl::StatusOr<MovedTensors> of_a = transfers_.Plan(module_, a, plan_.places);
    const absl::StatusOr<MovedTensors> of_b = transfers_.Plan(module_, b, plan_.places);
    if (!of_a.ok() || !of_b.ok() || of_a->types() != of_b->types()) return false;
    std::vector<std::vector<sbp::BoxingStep>> steps = of_a->steps();
    for (std::vector<sbp::BoxingStep>& of_tensor : steps) {
      for (sbp::BoxingStep& step : of_tensor) {
        for (sbp::Placement* end : {&step.from, &step.to})
          end->place = end->place == twin_.first ? twin_.stage : other_of_stage;
      }
    }
    return steps == of_b->steps();
  }

  const LogicalPlan& plan_;
  const Module& module_;
  const StageTwin& twin_;
  TransferFactory transfers_;
  NamePairs weights_, states_;
};

}  // namespace

std::optional<std::map<std::string, std::string>> PairWeights(const LogicalPlan& plan,
                                                              const StageTwin& twin) {
  return MemoryComparison(plan, twin).Run();
}

}  // namespace weir::compiler
