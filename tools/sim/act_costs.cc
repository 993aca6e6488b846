#include "tools/sim/act_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <variant>

#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/message_size.h"
#include "runtime/base/transfer/transfer.h"

namespace weir::sim {
namespace {

uint64_t KeyOfText(const std::string& text) { return KeyOf(text.data(), text.size()); }

uint64_t KeyOfValue(const AttrValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<uint64_t>(*i);
  if (const auto* f = std::get_if<double>(&value)) return std::bit_cast<uint64_t>(*f);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1 : 0;
  if (const auto* s = std::get_if<std::string>(&value)) return KeyOfText(*s);
  uint64_t key = 7;
  for (int64_t i : std::get<std::vector<int64_t>>(value))
    key = MixKey(key, static_cast<uint64_t>(i));
  return key;
}

uint64_t KeyOfCall(const DeviceCosts& costs, const actors::PlanCall& call, int64_t chunks) {
  uint64_t key = MixKey(reinterpret_cast<uintptr_t>(&costs), KeyOfText(call.op));
  key = MixKey(key, static_cast<uint64_t>(chunks));
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const actors::PlanOperand& operand : *operands) {
      key = MixKey(key,
                   static_cast<uint64_t>(operand.place == actors::PlanOperand::Place::kNone) * 16 +
                       static_cast<uint64_t>(operand.slice.dtype));
      for (int64_t size : operand.slice.shape) key = MixKey(key, static_cast<uint64_t>(size));
    }
    key = MixKey(key, operands->size());
  }
  // The choice of bytes in a transfer makes no difference to its cost. Only their number does.
  if (TransferTrafficOf(call.op) != TransferTraffic::kNone)
    return MixKey(key, static_cast<uint64_t>(TotalMessageElements(call.transfer)));
  for (const auto& [name, value] : call.attrs.map()) key = MixKey(key, KeyOfValue(value));
  return key;
}

uint64_t KeyOfWork(const DeviceCosts& costs, const KernelWork& work) {
  const uint64_t key = MixKey(reinterpret_cast<uintptr_t>(&costs), KeyOfText(work.op));
  return MixKey(MixKey(key, KeyOfText(work.dtype)), KeyOfText(work.shapes));
}

// Returns the mean bytes of the messages that an actor puts into the register.
double MessageBytes(const actors::Plan& plan, const actors::PlanActor& actor,
                    const actors::PlanRegister& r) {
  if (actor.program.has_value()) {
    for (const actors::PlanCall& call : plan.programs[actor.program].calls) {
      if (TransferTrafficOf(call.op) == TransferTraffic::kMessage) {
        return static_cast<double>(MeanMessageElements(call.transfer, actor.chunks) *
                                   SizeOf(call.outputs[0].slice.dtype));
      }
    }
  }
  return static_cast<double>(r.bytes);
}

// Returns the time for which sending keeps the device busy, besides the kernels that pack.
double SendNs(const ClusterMap& map, const actors::Plan& plan, const actors::PlanActor& actor) {
  double ns = 0;
  for (const actors::PlanPort& port : actor.outputs) {
    const actors::PlanRegister& r = plan.registers[port.register_id];
    if (r.side != actors::RegisterSide::kOutbound) continue;
    const proto::Link& link = map.LinkBetween(plan.rank, r.peer);
    ns += link.send_ns();
    if (link.send_bytes_per_second() > 0)
      ns += 1e9 * MessageBytes(plan, actor, r) / link.send_bytes_per_second();
  }
  return ns;
}

// Returns the time in which the bytes of an act's collectives pass over the slowest link of the
// rank's group, as if each rank sent its part to the next rank of a ring.
double CollectiveNs(const ClusterMap& map, const actors::Plan& plan,
                    const actors::PlanActor& actor) {
  if (actor.kind != actors::ActorKind::kCollective) return 0;
  double ns = 0;
  for (const actors::PlanCall& call : plan.programs[actor.program].calls) {
    const auto& collective = std::get<Collective>(call.transfer);
    const double bytes = RingBytes(
        collective, std::min(call.inputs[0].slice.bytes(), call.outputs[0].slice.bytes()));
    double slowest_ns = 0;
    for (const RankId rank : collective.ranks) {
      if (rank == plan.rank) continue;
      const proto::Link& link = map.LinkBetween(plan.rank, rank);
      const double per_second = link.bytes_per_second();
      slowest_ns =
          std::max(slowest_ns, link.latency_ns() + (per_second > 0 ? 1e9 * bytes / per_second : 0));
    }
    ns += slowest_ns;
  }
  return ns;
}

}  // namespace

absl::StatusOr<ActCosts::Kernel> ActCosts::Find(const DeviceCosts& costs, uint64_t key,
                                                const KernelWork& work) {
  WEIR_ASSIGN_OR_RETURN(const double ns, costs.KernelNs(work));
  const Kernel kernel{ns, costs.BusyRatio(work), !costs.HasRow(work)};
  known_[key] = kernel;
  ++sources_.kernels;
  sources_.estimated += kernel.estimated ? 1 : 0;
  return kernel;
}

absl::StatusOr<ActCosts::Cost> ActCosts::CostOf(const actors::Plan& plan,
                                                const actors::PlanActor& actor) {
  const DeviceCosts& costs = map_->costs(plan.rank);
  const double alone_ns =
      costs.model().act_ns() + SendNs(*map_, plan, actor) + CollectiveNs(*map_, plan, actor);
  double ns = alone_ns, busy_ns = alone_ns;
  bool any_busy = false;
  const auto add = [&](const Kernel& kernel) {
    ns += kernel.ns;
    busy_ns += kernel.ns * (kernel.busy_ratio > 0 ? kernel.busy_ratio : 1);
    any_busy = any_busy || kernel.busy_ratio > 0;
    sources_.step_ns += kernel.ns * static_cast<double>(actor.acts_per_step);
    sources_.estimated_ns +=
        kernel.estimated ? kernel.ns * static_cast<double>(actor.acts_per_step) : 0;
  };
  const auto find = [&](uint64_t key, const auto& work) -> absl::StatusOr<Kernel> {
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    return Find(costs, key, work());
  };
  if (!actor.program.has_value()) {
    const KernelWork work = WorkOf(plan, actor);
    WEIR_ASSIGN_OR_RETURN(const Kernel kernel, find(KeyOfWork(costs, work), [&] { return work; }));
    add(kernel);
  } else {
    for (const actors::PlanCall& call : plan.programs[actor.program].calls) {
      WEIR_ASSIGN_OR_RETURN(const Kernel kernel, find(KeyOfCall(costs, call, actor.chunks),
                                                      [&] { return WorkOf(call, actor.chunks); }));
      add(kernel);
    }
  }
  return Cost{std::llround(ns), any_busy && busy_ns > 0 ? ns / busy_ns : 0};
}

}  // namespace weir::sim
