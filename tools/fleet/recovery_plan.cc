#include "tools/fleet/recovery_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/base/rect.h"

namespace weir::fleet {

bool HasStates(const WorkerStanding& standing, int64_t step) {
  return standing.kept_step == step || standing.resting_step == step ||
         standing.older_kept_step == step;
}

namespace {

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
    plan.has_states = WhoHas(step);
    const std::map<ShardKey, std::vector<Holder>> holders = HoldersOf(plan.has_states);
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

  // Returns the plan for one step without transfers; nullopt if memory lacks an element of a state.
  std::optional<RecoveryPlan> WithoutTransfers(int64_t step) const {
    RecoveryPlan plan;
    plan.step = step;
    plan.has_states = WhoHas(step);
    const std::map<std::string, std::vector<Piece>> pieces = PiecesOf(step);
    for (const std::vector<HeldState>& shards : shards_of_) {
      for (const HeldState& shard : shards) {
        if (!Fill(pieces, WorkerId(), RankId(0), shard).has_value()) return std::nullopt;
      }
    }
    return plan;
  }

  // Returns the transfers that fill the shards of other ranks.
  std::optional<std::vector<Transfer>> TransfersTo(
      int64_t step, const IdVector<WorkerId, std::vector<RankId>>& to_ranks_of,
      const IdVector<RankId, std::vector<HeldState>>& to_shards_of) const {
    const std::map<std::string, std::vector<Piece>> pieces = PiecesOf(step);
    std::vector<Transfer> transfers;
    for (const WorkerId worker : to_ranks_of.ids()) {
      for (const RankId rank : to_ranks_of[worker]) {
        for (const HeldState& shard : to_shards_of[rank]) {
          std::optional<std::vector<Transfer>> filled = Fill(pieces, worker, rank, shard);
          if (!filled.has_value()) return std::nullopt;
          for (Transfer& transfer : *filled) transfers.push_back(std::move(transfer));
        }
      }
    }
    return transfers;
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

  // A shard of a state that memory has, with everybody who has it.
  struct Piece {
    TensorSlice slice;
    std::vector<Holder> holders;
    Transfer::Source source = Transfer::Source::kReplica;
  };

  IdVector<WorkerId, bool> WhoHas(int64_t step) const {
    IdVector<WorkerId, bool> has_states;
    for (const WorkerStanding& standing : standings_)
      has_states.push_back(HasStates(standing, step));
    return has_states;
  }

  std::map<ShardKey, std::vector<Holder>> HoldersOf(
      const IdVector<WorkerId, bool>& has_states) const {
    std::map<ShardKey, std::vector<Holder>> holders;
    for (const WorkerId worker : has_states.ids()) {
      if (!has_states[worker]) continue;
      for (const RankId rank : ranks_of_[worker]) {
        for (const HeldState& shard : shards_of_[rank])
          holders[KeyOf(shard)].push_back({worker, rank});
      }
    }
    return holders;
  }

  // Returns by name what memory has of each state of that step, shards of ranks before copies.
  std::map<std::string, std::vector<Piece>> PiecesOf(int64_t step) const {
    const std::map<ShardKey, std::vector<Holder>> holders = HoldersOf(WhoHas(step));
    std::map<std::string, std::vector<Piece>> pieces, copies;
    std::set<ShardKey> seen;
    for (const RankId rank : shards_of_.ids()) {
      for (const HeldState& shard : shards_of_[rank]) {
        if (!seen.insert(KeyOf(shard)).second) continue;
        if (const auto found = holders.find(KeyOf(shard)); found != holders.end()) {
          pieces[shard.name].push_back({shard.slice, found->second, Transfer::Source::kReplica});
        } else if (const std::optional<Transfer> copy = FromBuddy(step, rank, shard)) {
          copies[shard.name].push_back(
              {shard.slice, {{copy->giver, copy->from}}, Transfer::Source::kBuddy});
        }
      }
    }
    for (auto& [name, of_name] : copies) {
      for (Piece& piece : of_name) pieces[name].push_back(std::move(piece));
    }
    return pieces;
  }

  // Returns the transfers that fill a shard of a rank; nullopt if the pieces do not cover it.
  static std::optional<std::vector<Transfer>> Fill(
      const std::map<std::string, std::vector<Piece>>& pieces, WorkerId worker, RankId rank,
      const HeldState& shard) {
    std::vector<Transfer> transfers;
    std::vector<Rect> missing;
    if (shard.slice.num_elements() > 0) missing.push_back(RectOf(shard.slice));
    const auto of_name = pieces.find(shard.name);
    if (of_name == pieces.end()) return missing.empty() ? std::optional(transfers) : std::nullopt;
    const auto is_own = [worker](const Holder& holder) { return holder.worker == worker; };
    // A worker takes its own pieces first, because they travel nowhere.
    for (const bool from_own : {true, false}) {
      for (const Piece& piece : of_name->second) {
        const auto own = std::find_if(piece.holders.begin(), piece.holders.end(), is_own);
        if (from_own && own == piece.holders.end()) continue;
        const Holder& giver =
            from_own ? *own
                     : piece.holders[static_cast<size_t>(rank.value()) % piece.holders.size()];
        std::vector<Rect> still_missing;
        for (const Rect& rect : missing) {
          const Rect common = Intersect(rect, RectOf(piece.slice));
          if (common.volume() == 0) {
            still_missing.push_back(rect);
            continue;
          }
          TensorSlice part = SliceOf(shard.slice, common);
          const int64_t bytes = part.bytes();
          transfers.push_back({giver.rank, rank, shard.name, bytes, giver.worker, piece.source,
                               MovedPart{std::move(part), piece.slice, shard.slice}});
          for (Rect& rest : Subtract(rect, common)) still_missing.push_back(std::move(rest));
        }
        missing = std::move(still_missing);
      }
    }
    if (!missing.empty()) return std::nullopt;
    return transfers;
  }

  static std::optional<Transfer> FromReplica(const std::map<ShardKey, std::vector<Holder>>& holders,
                                             RankId rank, const HeldState& shard) {
    const auto found = holders.find(KeyOf(shard));
    if (found == holders.end()) return std::nullopt;
    // Several workers that need states share the replicas that have them.
    const std::vector<Holder>& from = found->second;
    const Holder& giver = from[static_cast<size_t>(rank.value()) % from.size()];
    return Transfer{giver.rank, rank, shard.name, shard.slice.bytes(), giver.worker, {}, {}};
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
            of.rank, rank, shard.name, shard.slice.bytes(), other, Transfer::Source::kBuddy, {}};
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
  std::set<std::string> hosts;  // with ranks
  for (const WorkerId worker : ranks_of.ids()) {
    if (!ranks_of[worker].empty()) hosts.insert(host_of[worker]);
  }
  const bool are_on_one_host = hosts.size() == 1;
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

namespace {

// Returns the steps of which a worker has states, the last one first.
std::set<int64_t, std::greater<>> StepsOf(const IdVector<WorkerId, WorkerStanding>& standings,
                                          const std::function<bool(int64_t step)>& may_begin_at) {
  std::set<int64_t, std::greater<>> steps;
  for (const WorkerStanding& standing : standings) {
    for (const int64_t step :
         {standing.kept_step, standing.resting_step, standing.older_kept_step}) {
      if (step >= 0 && may_begin_at(step)) steps.insert(step);
    }
  }
  return steps;
}

}  // namespace

RecoveryPlan PlanRecovery(const IdVector<WorkerId, WorkerStanding>& standings,
                          const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
                          const IdVector<RankId, std::vector<HeldState>>& shards_of,
                          const LoneShardsOf& lone,
                          const std::function<bool(int64_t step)>& may_begin_at) {
  const Planner planner(standings, ranks_of, shards_of, lone);
  for (const int64_t step : StepsOf(standings, may_begin_at)) {
    if (std::optional<RecoveryPlan> plan = planner.PlanFor(step)) return *std::move(plan);
  }
  RecoveryPlan none;
  none.without_states = planner.WithoutStates();
  return none;
}

RecoveryPlan PlanForOtherShards(const IdVector<WorkerId, WorkerStanding>& standings,
                                const StateLayout& layout,
                                const std::function<bool(int64_t step)>& may_begin_at) {
  const Planner planner(standings, layout.ranks_of, layout.shards_of, layout.lone);
  for (const int64_t step : StepsOf(standings, may_begin_at)) {
    if (std::optional<RecoveryPlan> plan = planner.WithoutTransfers(step)) return *std::move(plan);
  }
  RecoveryPlan none;
  none.without_states = planner.WithoutStates();
  return none;
}

std::optional<std::vector<Transfer>> PlanTransfers(
    const IdVector<WorkerId, WorkerStanding>& standings, const StateLayout& layout, int64_t step,
    const IdVector<WorkerId, std::vector<RankId>>& to_ranks_of,
    const IdVector<RankId, std::vector<HeldState>>& to_shards_of) {
  return Planner(standings, layout.ranks_of, layout.shards_of, layout.lone)
      .TransfersTo(step, to_ranks_of, to_shards_of);
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
      batches.back().push_back({transfer.from, transfer.to, transfer.name, begin, bytes,
                                transfer.giver, transfer.moved});
      begin += bytes;
      room -= bytes;
    } while (begin < transfer.bytes);
  }
  return batches;
}

}  // namespace weir::fleet
