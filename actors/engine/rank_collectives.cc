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
    case Collective::Kind::kAllToAll:
      operation.kind = Operation::Kind::kAllToAll;
      operation.count = in / static_cast<int64_t>(collective.ranks.size());
      break;
  }
  return operation;
}

}  // namespace

PlannedGroups::PlannedGroups(const Plan& plan) {
  const auto is_collective = [](const PlanActor& actor) {
    return actor.kind == ActorKind::kCollective;
  };
  for (const PlanActor& actor : plan.actors) {
    if (is_collective(actor)) ranks.push_back(GroupOf(plan, actor).ranks);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  actors.resize(plan.actors.size());
  for (const PlanActor& actor : plan.actors) {
    if (!is_collective(actor)) continue;
    Side& side = actors[actor.id];
    side.group = static_cast<size_t>(
        std::lower_bound(ranks.begin(), ranks.end(), GroupOf(plan, actor).ranks) - ranks.begin());
    for (const PlanCall& call : plan.programs[actor.program].calls)
      side.operations.push_back(OperationOf(call));
  }
}

collective::CommunicatorSpec PlannedGroups::SpecOf(size_t group, RankId rank) const {
  const std::vector<RankId>& of = ranks[group];
  collective::CommunicatorSpec spec;
  spec.group = absl::StrCat("of ranks ", absl::StrJoin(of, " "));
  spec.ranks = of;
  spec.rank = static_cast<int>(std::find(of.begin(), of.end(), rank) - of.begin());
  return spec;
}

Operation WithAddresses(Operation operation, const BoundProgram& program, size_t call) {
  operation.from = static_cast<const char*>(program.args(call).inputs[0]);
  operation.to = static_cast<char*>(program.args(call).outputs[0]);
  return operation;
}

RankCollectives::RankCollectives(const Plan* plan, collective::PolledCollectives* library,
                                 std::function<void()> wake)
    : plan_(plan),
      library_(library),
      wake_(std::move(wake)),
      groups_(*plan),
      under_way_(plan->actors.size()) {
  for (const ActorId actor : under_way_.ids())
    under_way_[actor].reserve(groups_.actors[actor].operations.size());
}

absl::StatusOr<std::unique_ptr<RankCollectives>> RankCollectives::Create(
    const Plan* plan, collective::PolledCollectives* library, std::function<void()> wake) {
  std::unique_ptr<RankCollectives> made(new RankCollectives(plan, library, std::move(wake)));
  WEIR_RETURN_IF_ERROR(made->Rejoin());
  return made;
}

absl::Status RankCollectives::Rejoin() {
  communicators_.clear();
  for (std::vector<int64_t>& numbers : under_way_) numbers.clear();
  ++epoch_;
  for (size_t group = 0; group < groups_.ranks.size(); ++group) {
    collective::CommunicatorSpec spec = groups_.SpecOf(group, plan_->rank);
    spec.epoch = epoch_;
    spec.unique_id = absl::StrCat(spec.group, ", epoch ", epoch_);
    WEIR_ASSIGN_OR_RETURN(communicators_.emplace_back(), library_->CreatePolled(spec, wake_));
  }
  return absl::OkStatus();
}

absl::Status RankCollectives::Begin(const PlanActor& actor, const BoundProgram* program) {
  const PlannedGroups::Side& side = groups_.actors[actor.id];
  for (size_t i = 0; i < side.operations.size(); ++i) {
    const absl::StatusOr<int64_t> number = communicators_[side.group]->Begin(
        program == nullptr ? side.operations[i] : WithAddresses(side.operations[i], *program, i));
    if (!number.ok()) return At(absl::StrCat("actor '", actor.name, "'"), number.status());
    under_way_[actor.id].push_back(*number);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RankCollectives::HasEnded(ActorId actor) {
  const size_t group = groups_.actors[actor].group;
  std::vector<int64_t>& numbers = under_way_[actor];
  while (!numbers.empty()) {
    const absl::StatusOr<bool> ended = communicators_[group]->HasEnded(numbers.back());
    if (!ended.ok())
      return At(absl::StrCat("actor '", plan_->actors[actor].name, "'"), ended.status());
    if (!*ended) return false;
    numbers.pop_back();
  }
  return true;
}

}  // namespace weir::actors
