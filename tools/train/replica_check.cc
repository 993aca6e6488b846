#include "tools/train/replica_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/checksum.h"
#include "runtime/base/status.h"

namespace weir::train {
namespace {

// Returns "rank 2" or "ranks 0, 1, 3".
std::string RanksText(const std::vector<RankId>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", ", [](std::string* out, RankId rank) {
                        absl::StrAppend(out, rank);
                      }));
}

// The holders of each shard. A shard is a weight and a place in it.
using Holders = std::map<std::tuple<std::string, Shape, Shape>, std::vector<const ShardSum*>>;

Holders HoldersOfShards(const std::vector<ShardSum>& sums) {
  Holders holders;
  for (const ShardSum& sum : sums)
    holders[{sum.name, sum.slice.offset, sum.slice.shape}].push_back(&sum);
  return holders;
}

}  // namespace

absl::StatusOr<std::vector<ShardSum>> SumWeights(const actors::Session& session) {
  std::vector<ShardSum> sums;
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (state.state_class != actors::StateClass::kWeight) continue;
      WEIR_ASSIGN_OR_RETURN(const device::HostView memory, session.ReadState(rank, state.name));
      sums.push_back({rank, state.name, state.slice,
                      Crc32c(memory.data(), static_cast<size_t>(state.slice.bytes()))});
    }
  }
  return sums;
}

bool HasReplicas(const std::vector<ShardSum>& sums) {
  return HoldersOfShards(sums).size() < sums.size();
}

std::optional<Divergence> FindDivergence(const std::vector<ShardSum>& sums) {
  Holders shards = HoldersOfShards(sums);
  std::optional<Divergence> first;
  std::set<std::string> differing;
  for (auto& [shard, holders] : shards) {
    std::map<uint32_t, int> votes;
    for (const ShardSum* sum : holders) ++votes[sum->crc];
    if (votes.size() < 2) continue;
    differing.insert(holders.front()->name);
    if (first.has_value()) continue;
    std::sort(holders.begin(), holders.end(),
              [](const ShardSum* a, const ShardSum* b) { return a->rank < b->rank; });
    first.emplace();
    first->name = holders.front()->name;
    first->slice = holders.front()->slice;
    const auto most =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const bool is_majority = 2 * most->second > static_cast<int>(holders.size());
    for (const ShardSum* sum : holders) {
      first->holders.push_back(sum->rank);
      if (is_majority && sum->crc != most->first) first->odd.push_back(sum->rank);
    }
  }
  if (first.has_value()) first->weights = static_cast<int64_t>(differing.size());
  return first;
}

std::string DivergenceText(const Divergence& divergence) {
  std::vector<RankId> others;
  std::set_difference(divergence.holders.begin(), divergence.holders.end(), divergence.odd.begin(),
                      divergence.odd.end(), std::back_inserter(others));
  const std::string weight = absl::StrCat(
      "'", divergence.name, "'",
      divergence.slice.is_whole() ? "" : absl::StrCat(" (", ToText(divergence.slice), ")"));
  std::string text =
      divergence.odd.empty()
          ? absl::StrCat(RanksText(divergence.holders), " do not have the same bits of ", weight,
                         ", and no bits have a majority")
          : absl::StrCat(RanksText(divergence.odd), divergence.odd.size() == 1 ? " has" : " have",
                         " other bits of ", weight, " than ", RanksText(others));
  return absl::StrCat(text, "; ", divergence.weights,
                      divergence.weights == 1 ? " weight differs" : " weights differ");
}

}  // namespace weir::train
