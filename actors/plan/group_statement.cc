#include "actors/plan/group_statement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

// Returns what an actor does and when. `number` counts the collectives of the rank, of all groups.
std::string Statement(const Plan& plan, const PlanActor& actor, int64_t number) {
  std::string text = absl::StrCat("collective ", number, " of the rank: ");
  const PlanProgram& program = plan.programs[actor.program];
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const PlanCall& call = program.calls[i];
    const auto& collective = std::get<Collective>(call.transfer);
    const bool reduces = collective.kind == Collective::Kind::kAllReduce ||
                         collective.kind == Collective::Kind::kReduceScatter;
    absl::StrAppend(&text, i == 0 ? "" : ", ", Name(collective.kind),
                    reduces ? absl::StrCat(" (", Name(collective.combiner), ")") : "", " of ",
                    call.inputs[0].slice.num_elements(), " ", Name(call.inputs[0].slice.dtype));
  }
  const PlanTiming& timing = actor.timing;
  const PlanRhythm& rhythm = plan.rhythm;
  return absl::StrCat(text, "; ", rhythm.steps_per_iteration, " steps in ", rhythm.iteration_ns,
                      " ns, ", rhythm.step_ns, " ns apart; ", actor.acts_per_step, " acts, every ",
                      actor.every, " from ", actor.every_phase, ", start ", timing.start_ns,
                      ", micro-batch stride ", timing.micro_batch_stride_ns, ", time ",
                      timing.time_ns, " ns", timing.act_start_ns.empty() ? "" : ", starts ",
                      absl::StrJoin(timing.act_start_ns, " "));
}

}  // namespace

const Collective& GroupOf(const Plan& plan, const PlanActor& actor) {
  return std::get<Collective>(plan.programs[actor.program].calls[0].transfer);
}

std::vector<GroupStatement> GroupStatements(const Plan& plan) {
  std::vector<GroupStatement> statements;
  int64_t number = 0;
  for (const PlanActor& actor : plan.actors) {
    if (actor.kind != ActorKind::kCollective) continue;
    const std::vector<RankId>& ranks = GroupOf(plan, actor).ranks;
    auto known = std::find_if(statements.begin(), statements.end(),
                              [&](const GroupStatement& s) { return s.ranks == ranks; });
    if (known == statements.end())
      known = statements.insert(statements.end(), GroupStatement{ranks, {}});
    known->operations.push_back(Statement(plan, actor, number++));
  }
  return statements;
}

absl::Status VerifyGroups(absl::Span<const Plan> plans) {
  struct First {
    RankId rank;
    std::vector<std::string> operations;
  };
  std::map<std::vector<RankId>, First> stated;  // by the ranks of a group
  std::map<RankId, std::vector<GroupStatement>> by_rank;
  for (const Plan& plan : plans) by_rank[plan.rank] = GroupStatements(plan);
  for (auto& [rank, statements] : by_rank) {
    for (GroupStatement& statement : statements) {
      for (const RankId member : statement.ranks) {
        const auto there = by_rank.find(member);
        if (there == by_rank.end()) continue;  // of another process
        const bool knows =
            std::any_of(there->second.begin(), there->second.end(),
                        [&](const GroupStatement& s) { return s.ranks == statement.ranks; });
        if (knows) continue;
        return Rejected(
            {"W0954", absl::StrCat("the plan of rank ", member),
             absl::StrCat("collectives of the group of ranks ", absl::StrJoin(statement.ranks, " "),
                          ", as rank ", rank, " has"),
             "none", "compile all ranks with the same compiler and job"});
      }
    }
  }
  for (auto& [rank, statements] : by_rank) {
    for (const GroupStatement& statement : statements) {
      const auto [known, is_new] =
          stated.emplace(statement.ranks, First{rank, statement.operations});
      if (is_new) continue;
      const std::vector<std::string>&a = known->second.operations, &b = statement.operations;
      if (a == b) continue;
      const size_t most = std::min(a.size(), b.size());
      const auto differ = static_cast<size_t>(
          std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
          a.begin());
      const auto text = [&](const std::vector<std::string>& list) {
        return differ < list.size() ? list[differ] : std::string("no further collective");
      };
      return Rejected({"W0954",
                       absl::StrCat("the plan of rank ", rank, ", group of ranks ",
                                    absl::StrJoin(statement.ranks, " "), ", collective ", differ,
                                    " of the group"),
                       absl::StrCat(text(a), ", as rank ", known->second.rank, " says"), text(b),
                       "compile all ranks with the same compiler and job"});
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroupsAreHere(absl::Span<const Plan> plans) {
  for (const Plan& plan : plans) {
    for (const GroupStatement& statement : GroupStatements(plan)) {
      for (const RankId member : statement.ranks) {
        if (std::any_of(plans.begin(), plans.end(),
                        [&](const Plan& other) { return other.rank == member; }))
          continue;
        return Rejected({"W0955",
                         absl::StrCat("the plan of rank ", plan.rank, ", group of ranks ",
                                      absl::StrJoin(statement.ranks, " ")),
                         "all ranks of the group in one process",
                         absl::StrCat("rank ", member, " in another process"),
                         "run the job in one process, or set runtime.collectives to EXCHANGES"});
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::actors
