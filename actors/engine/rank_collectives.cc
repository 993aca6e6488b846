#include "actors/engine/rank_collectives.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/plan/group_statement.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

using collective::Operation;

Operation OperationOf(const PlanCall& call) {
  const auto& collective = std::get<Collective>(call.transfer);
  Operation operation;
  operation.dtype = call.inputs[0].slice.dtype;
  operation.combiner = collective.combiner;
  const int64_t in = call.inputs[0].slice.num_elements(),
                out = call.outputs[0].slice.num_elements();
  operation.count = std::min(in, out);
  switch (collective.kind) {
    case Collective::Kind::kAllReduce: operation.kind = Operation::Kind::kAllReduce; break;
    case Collective::Kind::kReduceScatter: operation.kind = Operation::Kind::kReduceScatter; break;
    case Collective::Kind::kAllGather: operation.kind = Operation::Kind::kAllGather; break;
  }
  return operation;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankCollectives>> RankCollectives::Create(
    const Plan* plan, collective::LocalCollectives* library) {
  std::unique_ptr<RankCollectives> made(new RankCollectives(plan, library));
  made->actors_.resize(plan->actors.size());
  for (const PlanActor& actor : plan->actors) {
    if (actor.kind != ActorKind::kCollective) continue;
    const std::vector<RankId>& ranks = GroupOf(*plan, actor).ranks;
    const auto known = std::find(made->groups_.begin(), made->groups_.end(), ranks);
    ActorSide& side = made->actors_[actor.id];
    side.group = static_cast<size_t>(known - made->groups_.begin());
    if (known == made->groups_.end()) made->groups_.push_back(ranks);
    for (const PlanCall& call : plan->programs[actor.program].calls)
      side.operations.push_back(OperationOf(call));
    side.under_way.reserve(side.operations.size());
  }
  WEIR_RETURN_IF_ERROR(made->Rejoin());
  return made;
}

absl::Status RankCollectives::Rejoin() {
  communicators_.clear();
  for (ActorSide& side : actors_) side.under_way.clear();
  ++epoch_;
  for (const std::vector<RankId>& ranks : groups_) {
    collective::CommunicatorSpec spec;
    spec.group = absl::StrCat("of ranks ", absl::StrJoin(ranks, " "));
    spec.epoch = epoch_;
    spec.ranks = ranks;
    spec.rank =
        static_cast<int>(std::find(ranks.begin(), ranks.end(), plan_->rank) - ranks.begin());
    spec.unique_id = absl::StrCat(spec.group, ", epoch ", epoch_);
    WEIR_ASSIGN_OR_RETURN(communicators_.emplace_back(), library_->CreatePolled(spec));
  }
  return absl::OkStatus();
}

absl::Status RankCollectives::Begin(const PlanActor& actor, const BoundProgram& program) {
  ActorSide& side = actors_[actor.id];
  for (size_t i = 0; i < side.operations.size(); ++i) {
    Operation operation = side.operations[i];
    operation.from = static_cast<const char*>(program.args(i).inputs[0]);
    operation.to = static_cast<char*>(program.args(i).outputs[0]);
    absl::StatusOr<int64_t> number = communicators_[side.group]->Begin(operation);
    if (!number.ok()) return At(absl::StrCat("actor '", actor.name, "'"), number.status());
    side.under_way.push_back(*number);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RankCollectives::HasEnded(ActorId actor) {
  ActorSide& side = actors_[actor];
  while (!side.under_way.empty()) {
    const absl::StatusOr<bool> ended = communicators_[side.group]->HasEnded(side.under_way.back());
    if (!ended.ok())
      return At(absl::StrCat("actor '", plan_->actors[actor].name, "'"), ended.status());
    if (!*ended) return false;
    side.under_way.pop_back();
  }
  return true;
}

}  // namespace weir::actors
