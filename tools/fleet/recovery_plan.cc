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
          const IdVector<RankId, std::vector<HeldState>>& shards_of, const LoneShardsOf& lone)
      : standings_(standings),
        ranks_of_(ranks_of),
        shards_of_(shards_of),
        lone_(lone),
        copied_(CopiedShards()) {}

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
          if (!transfer.has_value()) transfer = FromBuddy(step, rank, shard);
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
      if (!lone_.Has(worker) || lone_[worker].empty() || own.kept_step >= 0 ||
          own.resting_step >= 0)
        continue;
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

  // The copy may be of another worker that held the same shard, and was lost at the same time.
  std::optional<Transfer> FromBuddy(int64_t step, RankId rank, const HeldState& shard) const {
    const auto found = copied_.find(KeyOf(shard));
    if (found == copied_.end()) return std::nullopt;
    const Holder& of = found->second;
    for (const WorkerId other : standings_.ids()) {
      for (const WholeCopy& copy : standings_[other].guarded) {
        if (copy.charge != of.worker || copy.step != step) continue;
        return Transfer{
            of.rank, rank, shard.name, shard.slice.bytes(), other, Transfer::Source::kBuddy};
      }
    }
    return std::nullopt;
  }

  // Returns of which worker, and under which of its ranks, a buddy has the copy of each lone shard.
  std::map<ShardKey, Holder> CopiedShards() const {
    std::map<ShardKey, Holder> copied;
    for (const WorkerId worker : lone_.ids()) {
      std::set<std::pair<RankId, std::string>> lone;
      for (const GuardedShard& shard : lone_[worker]) lone.insert({shard.rank, shard.name});
      for (const RankId rank : ranks_of_[worker]) {
        for (const HeldState& shard : shards_of_[rank]) {
          if (lone.count({rank, shard.name}) > 0) copied[KeyOf(shard)] = {worker, rank};
        }
      }
    }
    return copied;
  }

  const IdVector<WorkerId, WorkerStanding>& standings_;
  const IdVector<WorkerId, std::vector<RankId>>& ranks_of_;
  const IdVector<RankId, std::vector<HeldState>>& shards_of_;
  const LoneShardsOf& lone_;
  const std::map<ShardKey, Holder> copied_;
};

}  // namespace

LoneShardsOf LoneShards(const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
                        const IdVector<RankId, std::vector<HeldState>>& shards_of,
                        const IdVector<WorkerId, std::string>& host_of) {
  struct Holders {
    std::map<WorkerId, GuardedShard> first_of;  // the first rank of each worker
    std::set<std::string> hosts;
  };
  std::map<ShardKey, Holders> holders_of;
  for (const WorkerId worker : ranks_of.ids()) {
    for (const RankId rank : ranks_of[worker]) {
      for (const HeldState& shard : shards_of[rank]) {
        Holders& holders = holders_of[KeyOf(shard)];
        holders.first_of.insert({worker, {rank, shard.name, shard.slice.bytes()}});
        holders.hosts.insert(host_of[worker]);
      }
    }
  }
  const bool are_on_one_host = std::set<std::string>(host_of.begin(), host_of.end()).size() == 1;
  LoneShardsOf lone(ranks_of.size());
  IdVector<WorkerId, int64_t> bytes_of(ranks_of.size(), 0);
  for (const auto& [key, holders] : holders_of) {
    if (are_on_one_host ? holders.first_of.size() > 1 : holders.hosts.size() > 1) continue;
    const auto chosen = std::min_element(holders.first_of.begin(), holders.first_of.end(),
                                         [&bytes_of](const auto& a, const auto& b) {
                                           return bytes_of[a.first] < bytes_of[b.first];
                                         });
    lone[chosen->first].push_back(chosen->second);
    bytes_of[chosen->first] += chosen->second.bytes;
  }
  for (std::vector<GuardedShard>& shards : lone) {
    std::sort(shards.begin(), shards.end(), [](const GuardedShard& a, const GuardedShard& b) {
      return std::tie(a.rank, a.name) < std::tie(b.rank, b.name);
    });
  }
  return lone;
}

RecoveryPlan PlanRecovery(const IdVector<WorkerId, WorkerStanding>& standings,
                          const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
                          const IdVector<RankId, std::vector<HeldState>>& shards_of,
                          const LoneShardsOf& lone,
                          const std::function<bool(int64_t step)>& may_begin_at) {
  std::set<int64_t, std::greater<>> steps;  // the last one first
  for (const WorkerStanding& standing : standings) {
    for (const int64_t step :
         {standing.kept_step, standing.resting_step, standing.older_kept_step}) {
      if (step >= 0 && may_begin_at(step)) steps.insert(step);
    }
  }
  const Planner planner(standings, ranks_of, shards_of, lone);
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
