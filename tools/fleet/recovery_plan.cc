#include "tools/fleet/recovery_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace weir::fleet {
namespace {

bool Has(const WorkerStanding& standing, int64_t step) {
  return standing.kept_step == step || standing.resting_step == step ||
         standing.older_kept_step == step;
}

// A shard under its name and place; ToText of a slice tells slices apart.
using ShardKey = std::pair<std::string, std::string>;

ShardKey KeyOf(const HeldState& shard) { return {shard.name, ToText(shard.slice)}; }

class Planner {
 public:
  Planner(const IdVector<WorkerId, WorkerStanding>& standings,
          const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
          const IdVector<RankId, std::vector<HeldState>>& shards_of)
      : standings_(standings),
        ranks_of_(ranks_of),
        shards_of_(shards_of),
        lone_(LoneShards(ranks_of, shards_of)) {}

  // Returns the plan for one step; nullopt if memory lacks a shard of that step.
  std::optional<RecoveryPlan> PlanFor(int64_t step) const {
    RecoveryPlan plan;
    plan.step = step;
    std::map<ShardKey, std::vector<Holder>> holders;
    for (const WorkerId worker : standings_.ids()) {
      plan.has_states.push_back(Has(standings_[worker], step));
      if (!plan.has_states[worker]) continue;
      for (const RankId rank : ranks_of_[worker]) {
        for (const HeldState& shard : shards_of_[rank])
          holders[KeyOf(shard)].push_back({worker, rank});
      }
    }
    for (const WorkerId worker : standings_.ids()) {
      if (plan.has_states[worker]) continue;
      for (const RankId rank : ranks_of_[worker]) {
        for (const HeldState& shard : shards_of_[rank]) {
          std::optional<Transfer> transfer = FromReplica(holders, rank, shard);
          if (!transfer.has_value()) transfer = FromBuddy(step, worker, rank, shard);
          if (!transfer.has_value()) return std::nullopt;
          plan.bytes += transfer->bytes;
          plan.transfers.push_back(*std::move(transfer));
        }
      }
    }
    return plan;
  }

  std::vector<WorkerId> WithoutStates() const {
    std::vector<WorkerId> without;
    for (const WorkerId worker : standings_.ids()) {
      const WorkerStanding& own = standings_[worker];
      if (lone_[worker].empty() || own.kept_step >= 0 || own.resting_step >= 0) continue;
      const bool has_copy =
          std::any_of(standings_.begin(), standings_.end(), [worker](const WorkerStanding& other) {
            return std::any_of(other.guarded.begin(), other.guarded.end(),
                               [worker](const WholeCopy& copy) { return copy.charge == worker; });
          });
      if (!has_copy) without.push_back(worker);
    }
    return without;
  }

 private:
  struct Holder {
    WorkerId worker;
    RankId rank;
  };

  static std::optional<Transfer> FromReplica(const std::map<ShardKey, std::vector<Holder>>& holders,
                                             RankId rank, const HeldState& shard) {
    const auto found = holders.find(KeyOf(shard));
    if (found == holders.end()) return std::nullopt;
    // Several workers that need states share the replicas that have them.
    const std::vector<Holder>& from = found->second;
    const Holder& giver = from[static_cast<size_t>(rank.value()) % from.size()];
    return Transfer{giver.rank, rank, shard.name, shard.slice.bytes(), giver.worker};
  }

  std::optional<Transfer> FromBuddy(int64_t step, WorkerId worker, RankId rank,
                                    const HeldState& shard) const {
    for (const WorkerId other : standings_.ids()) {
      for (const WholeCopy& copy : standings_[other].guarded) {
        if (copy.charge != worker || copy.step != step) continue;
        const std::optional<RankId> copied = CopiedFrom(worker, shard);
        if (!copied.has_value()) return std::nullopt;
        return Transfer{
            *copied, rank, shard.name, shard.slice.bytes(), other, Transfer::Source::kBuddy};
      }
    }
    return std::nullopt;
  }

  // Returns the rank under which the copy of the worker's lone shards has this shard; nullopt: the
  // shard is not lone.
  std::optional<RankId> CopiedFrom(WorkerId worker, const HeldState& shard) const {
    const ShardKey key = KeyOf(shard);
    for (const GuardedShard& lone : lone_[worker]) {
      if (lone.name != shard.name) continue;
      for (const HeldState& held : shards_of_[lone.rank]) {
        if (KeyOf(held) == key) return lone.rank;
      }
    }
    return std::nullopt;
  }

  const IdVector<WorkerId, WorkerStanding>& standings_;
  const IdVector<WorkerId, std::vector<RankId>>& ranks_of_;
  const IdVector<RankId, std::vector<HeldState>>& shards_of_;
  const IdVector<WorkerId, std::vector<GuardedShard>> lone_;
};

}  // namespace

IdVector<WorkerId, std::vector<GuardedShard>> LoneShards(
    const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
    const IdVector<RankId, std::vector<HeldState>>& shards_of) {
  std::map<ShardKey, std::set<WorkerId>> holders;
  for (const WorkerId worker : ranks_of.ids()) {
    for (const RankId rank : ranks_of[worker]) {
      for (const HeldState& shard : shards_of[rank]) holders[KeyOf(shard)].insert(worker);
    }
  }
  IdVector<WorkerId, std::vector<GuardedShard>> lone(ranks_of.size());
  std::set<ShardKey> seen;
  for (const WorkerId worker : ranks_of.ids()) {
    for (const RankId rank : ranks_of[worker]) {
      for (const HeldState& shard : shards_of[rank]) {
        const ShardKey key = KeyOf(shard);
        if (holders[key].size() == 1 && seen.insert(key).second)
          lone[worker].push_back({rank, shard.name, shard.slice.bytes()});
      }
    }
    std::sort(lone[worker].begin(), lone[worker].end(),
              [](const GuardedShard& a, const GuardedShard& b) {
                return std::tie(a.rank, a.name) < std::tie(b.rank, b.name);
              });
  }
  return lone;
}

RecoveryPlan PlanRecovery(const IdVector<WorkerId, WorkerStanding>& standings,
                          const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
                          const IdVector<RankId, std::vector<HeldState>>& shards_of,
                          const std::function<bool(int64_t step)>& may_begin_at) {
  std::set<int64_t, std::greater<>> steps;  // the last one first
  for (const WorkerStanding& standing : standings) {
    for (const int64_t step :
         {standing.kept_step, standing.resting_step, standing.older_kept_step}) {
      if (step >= 0 && may_begin_at(step)) steps.insert(step);
    }
  }
  const Planner planner(standings, ranks_of, shards_of);
  for (const int64_t step : steps) {
    if (std::optional<RecoveryPlan> plan = planner.PlanFor(step)) return *std::move(plan);
  }
  RecoveryPlan none;
  none.without_states = planner.WithoutStates();
  return none;
}

std::vector<std::vector<StateMove>> BatchesOf(const std::vector<Transfer>& transfers,
                                              int64_t bytes_max) {
  std::vector<std::vector<StateMove>> batches;
  int64_t room = 0;
  for (const Transfer& transfer : transfers) {
    int64_t begin = 0;
    do {
      if (room == 0) {
        batches.emplace_back();
        room = bytes_max;
      }
      const int64_t bytes = std::min(room, transfer.bytes - begin);
      batches.back().push_back(
          {transfer.from, transfer.to, transfer.name, begin, bytes, transfer.giver});
      begin += bytes;
      room -= bytes;
    } while (begin < transfer.bytes);
  }
  return batches;
}

}  // namespace weir::fleet
