#include "compiler/explain/host_traffic.h"

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/base/status.h"
#include "sbp/boxing_over_hosts.h"

namespace weir::compiler {
namespace {

absl::StatusOr<int64_t> BytesOf(const sbp::TensorType& type, const sbp::Placement& from,
                                const sbp::Placement& to, const sbp::Places& places) {
  WEIR_ASSIGN_OR_RETURN(const sbp::Boxing boxing, sbp::PlanBoxingOverHosts(type, from, to, places));
  return sbp::BytesBetweenHosts(boxing.type, boxing.steps, boxing.places, *places.host_cut());
}

}  // namespace

HostTraffic::HostTraffic(const LogicalPlan& plan) : steps_per_update_(plan.updates.every) {
  const Module& module = plan.module;
  std::map<int, int64_t> calls;  // by function, in the steps of an update
  for (const ProgramItem& item : module.items) {
    const int64_t times = TimesPerUpdate(plan, item.frequency);
    if (item.kind == ItemKind::kCall) calls[item.function] += times;
    if (item.kind != ItemKind::kBoxing) continue;
    for (size_t i = 0; i < item.inputs.size(); ++i) {
      const ProgramValue &from = module.values[item.inputs[i]],
                         &to = module.values[item.outputs[i]];
      Boxings* const boxings = Find(from.type, from.layout, to.layout);
      if (from.stage == to.stage) {
        boxings->within_stages += times;
      } else {
        boxings->stages.emplace_back(from.stage, to.stage);
        boxings->times.push_back(times);
      }
    }
  }
  for (const auto& [index, times] : calls) {
    const Function& function = module.functions[index];
    for (const Node& node : function.nodes) {
      if (node.op != kBoxingOp) continue;
      const Value &from = function.values[node.inputs[0]], &to = function.values[node.outputs[0]];
      Find(from.type, from.layout, to.layout)->within_stages += times;
    }
  }
}

HostTraffic::Boxings* HostTraffic::Find(const sbp::TensorType& type, const sbp::Layout& from,
                                        const sbp::Layout& to) {
  const auto known = std::find_if(boxings_.begin(), boxings_.end(), [&](const Boxings& boxings) {
    return boxings.from == from && boxings.to == to && boxings.type == type;
  });
  if (known != boxings_.end()) return &*known;
  boxings_.push_back({type, from, to, 0, {}, {}});
  return &boxings_.back();
}

absl::StatusOr<double> HostTraffic::BytesBetweenHosts(const sbp::Places& places) const {
  const auto host_of = [&](int64_t stage) { return places.HostOf(places.RankAt(stage, 0)); };
  double bytes = 0;
  for (const Boxings& boxings : boxings_) {
    if (boxings.within_stages > 0) {
      WEIR_ASSIGN_OR_RETURN(const int64_t once,
                            BytesOf(boxings.type, {boxings.from, 0}, {boxings.to, 0}, places));
      bytes += static_cast<double>(once) * static_cast<double>(boxings.within_stages);
    }
    // Pairs of stages differ in nothing but whether they share their hosts.
    std::optional<int64_t> sharing, apart;
    for (size_t i = 0; i < boxings.stages.size(); ++i) {
      const auto [from, to] = boxings.stages[i];
      std::optional<int64_t>& once = host_of(from) == host_of(to) ? sharing : apart;
      if (!once.has_value()) {
        WEIR_ASSIGN_OR_RETURN(
            once, BytesOf(boxings.type, {boxings.from, from}, {boxings.to, to}, places));
      }
      bytes += static_cast<double>(*once) * static_cast<double>(boxings.times[i]);
    }
  }
  return bytes / static_cast<double>(steps_per_update_);
}

}  // namespace weir::compiler
