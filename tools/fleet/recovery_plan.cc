#include "tools/fleet/recovery_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace weir::fleet {
namespace {

bool Has(const WorkerStanding& standing, int64_t step) {
  return standing.kept_step == step || standing.resting_step == step;
}

// A shard under its name and place; ToText of a slice tells slices apart.
using ShardKey = std::pair<std::string, std::string>;

ShardKey KeyOf(const HeldState& shard) { return {shard.name, ToText(shard.slice)}; }

// Returns the plan for one step; nullopt if memory lacks a shard of that step.
std::optional<RecoveryPlan> PlanFor(int64_t step,
                                    const IdVector<WorkerId, WorkerStanding>& standings,
                                    const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
                                    const IdVector<RankId, std::vector<HeldState>>& shards_of) {
  RecoveryPlan plan;
  plan.step = step;
  std::map<ShardKey, std::vector<RankId>> holders;
  for (const WorkerId worker : standings.ids()) {
    plan.has_states.push_back(Has(standings[worker], step));
    if (!plan.has_states[worker]) continue;
    for (const RankId rank : ranks_of[worker]) {
      for (const HeldState& shard : shards_of[rank]) holders[KeyOf(shard)].push_back(rank);
    }
  }
  for (const WorkerId worker : standings.ids()) {
    if (plan.has_states[worker]) continue;
    for (const RankId rank : ranks_of[worker]) {
      for (const HeldState& shard : shards_of[rank]) {
        const auto found = holders.find(KeyOf(shard));
        if (found == holders.end()) return std::nullopt;
        // Several workers that need states share the replicas that have them.
        const std::vector<RankId>& from = found->second;
        const size_t turn = static_cast<size_t>(rank.value()) % from.size();
        plan.transfers.push_back({from[turn], rank, shard.name, shard.slice.bytes()});
        plan.bytes += shard.slice.bytes();
      }
    }
  }
  return plan;
}

}  // namespace

RecoveryPlan PlanRecovery(const IdVector<WorkerId, WorkerStanding>& standings,
                          const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
                          const IdVector<RankId, std::vector<HeldState>>& shards_of,
                          const std::function<bool(int64_t step)>& may_begin_at) {
  std::set<int64_t, std::greater<>> steps;  // the last one first
  for (const WorkerStanding& standing : standings) {
    for (const int64_t step : {standing.kept_step, standing.resting_step}) {
      if (step >= 0 && may_begin_at(step)) steps.insert(step);
    }
  }
  for (const int64_t step : steps) {
    if (std::optional<RecoveryPlan> plan = PlanFor(step, standings, ranks_of, shards_of))
      return *std::move(plan);
  }
  return {};
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
      batches.back().push_back({transfer.from, transfer.to, transfer.name, begin, bytes});
      begin += bytes;
      room -= bytes;
    } while (begin < transfer.bytes);
  }
  return batches;
}

}  // namespace weir::fleet
