#include "actors/engine/stall_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir {
namespace {

std::string ActorOnRank(const Plan& plan, int actor) {
  return absl::StrCat("actor '", plan.actors[actor].name, "' on rank ", plan.rank);
}

// The register at the other end of a remote edge; null if that rank is not here.
const PlanRegister* OtherEnd(absl::Span<const Plan* const> plans, const PlanRegister& r, const Plan** plan) {
  for (const Plan* candidate : plans) {
    if (candidate->rank != r.peer) continue;
    for (const PlanRegister& other : candidate->registers) {
      if (other.edge == r.edge && other.side != RegisterSide::kLocal && other.side != r.side) {
        *plan = candidate;
        return &other;
      }
    }
  }
  return nullptr;
}

}  // namespace

std::string DescribeHolder(absl::Span<const Plan* const> plans, int rank, int register_id, HeldBack what) {
  const Plan* plan = nullptr;
  for (const Plan* candidate : plans) {
    if (candidate->rank == rank) plan = candidate;
  }
  const PlanRegister* r = &plan->registers[register_id];
  const bool remote = what == HeldBack::kToken ? r->side == RegisterSide::kInbound : r->side == RegisterSide::kOutbound;
  if (remote) {
    const int peer = r->peer;
    r = OtherEnd(plans, *r, &plan);
    if (r == nullptr) return absl::StrCat("rank ", peer);
  }
  if (what == HeldBack::kToken) return ActorOnRank(*plan, r->producer.actor);
  std::vector<std::string> holders;
  for (const PortRef& consumer : r->consumers) holders.push_back(ActorOnRank(*plan, consumer.actor));
  return absl::StrJoin(holders, " and ");
}

std::string DescribeStall(absl::Span<RankExecutor* const> ranks, int lines_max) {
  std::vector<const Plan*> plans;
  for (const RankExecutor* rank : ranks) plans.push_back(&rank->plan());
  std::string text;
  int lines = 0, left_out = 0;
  for (const RankExecutor* rank : ranks) {
    const Plan& plan = rank->plan();
    for (const PlanActor& actor : plan.actors) {
      const ActorMachine& machine = rank->machine(actor.id);
      const ActorState state = machine.state();
      if (state == ActorState::kDone) continue;
      if (++lines > lines_max) {
        ++left_out;
        continue;
      }
      absl::StrAppend(&text, "\n  rank ", plan.rank, " actor '", actor.name, "': ", machine.acts_done(), " of ",
                      machine.limit(), " acts, ", Name(state));
      if (state == ActorState::kWaitsForInput || state == ActorState::kWaitsForCredit) {
        const int reg = machine.waits_for().value();
        const HeldBack what = state == ActorState::kWaitsForInput ? HeldBack::kToken : HeldBack::kSlot;
        absl::StrAppend(&text, " '", plan.registers[reg].name, "', held by ",
                        DescribeHolder(plans, plan.rank, reg, what));
      }
    }
  }
  if (left_out > 0) absl::StrAppend(&text, "\n  and ", left_out, " more");
  return text;
}

}  // namespace weir
