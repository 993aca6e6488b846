#include "actors/engine/holders.h"

#include "absl/strings/str_cat.h"

namespace weir::actors {
namespace {

std::string ActorOnRank(const Plan& plan, ActorId actor) {
  return absl::StrCat("actor '", plan.actors[actor].name, "' on rank ", plan.rank);
}

}  // namespace

Holders::Holders(const std::vector<const Plan*>& plans) {
  for (const Plan* plan : plans) {
    for (const PlanRegister& r : plan->registers) {
      if (r.side == RegisterSide::kOutbound) senders_[r.edge] = {plan, &r};
      if (r.side == RegisterSide::kInbound) receivers_[r.edge] = {plan, &r};
    }
  }
}

std::vector<Holders::Actor> Holders::ActorsOfToken(const Plan& plan, RegisterId register_id) const {
  End end{&plan, &plan.registers[register_id]};
  if (end.second->side == RegisterSide::kInbound) {
    auto sender = senders_.find(end.second->edge);
    if (sender == senders_.end()) return Far(*end.second);
    end = sender->second;
  }
  const ActorId actor = end.second->producer.actor;
  return {{end.first->rank, actor, -1, end.first->actors[actor].name}};
}

std::vector<Holders::Actor> Holders::ActorsOfSlot(const Plan& plan, RegisterId register_id) const {
  End end{&plan, &plan.registers[register_id]};
  if (end.second->side == RegisterSide::kOutbound) {
    auto receiver = receivers_.find(end.second->edge);
    if (receiver == receivers_.end()) return Far(*end.second);
    end = receiver->second;
  }
  std::vector<Actor> actors;
  for (const PortRef& consumer : end.second->consumers) {
    actors.push_back(
        {end.first->rank, consumer.actor, consumer.port, end.first->actors[consumer.actor].name});
  }
  return actors;
}

std::vector<Holders::Actor> Holders::Far(const PlanRegister& r) {
  std::vector<Actor> actors;
  for (const PlanFarActor& far : r.far) actors.push_back({r.peer, ActorId(), -1, far.name});
  if (actors.empty()) actors.push_back({r.peer, ActorId(), -1, ""});
  return actors;
}

std::string Holders::OfToken(const Plan& plan, RegisterId register_id) const {
  End end{&plan, &plan.registers[register_id]};
  if (end.second->side == RegisterSide::kInbound) {
    auto sender = senders_.find(end.second->edge);
    if (sender == senders_.end()) return absl::StrCat("rank ", end.second->peer);
    end = sender->second;
  }
  return ActorOnRank(*end.first, end.second->producer.actor);
}

std::string Holders::OfSlot(const Plan& plan, RegisterId register_id) const {
  End end{&plan, &plan.registers[register_id]};
  if (end.second->side == RegisterSide::kOutbound) {
    auto receiver = receivers_.find(end.second->edge);
    if (receiver == receivers_.end()) return absl::StrCat("rank ", end.second->peer);
    end = receiver->second;
  }
  std::string text;
  for (const PortRef& consumer : end.second->consumers) {
    absl::StrAppend(&text, text.empty() ? "" : " and ", ActorOnRank(*end.first, consumer.actor));
  }
  return text;
}

}  // namespace weir::actors
