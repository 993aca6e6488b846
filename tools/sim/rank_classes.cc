#include "tools/sim/rank_classes.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::sim {
namespace {

constexpr int64_t kScalarBytesMax = 1 << 12;  // of a step
// The sending stage, the receiving stage, the place of the other end in its stage's mesh, and the
// receiver. Registers of one key keep the order of the plan, which is the order of the program.
using Key = std::tuple<int64_t, int64_t, int64_t, std::string>;

// Returns the name of the actor that reads the messages of a register. Both ends of an edge know
// that name, and the receivers of one transfer have the same name on all ranks.
const std::string& ReaderOf(const actors::Plan& plan, const actors::PlanRegister& r) {
  return r.side == actors::RegisterSide::kInbound ? plan.actors[r.consumers[0].actor].name
                                                  : r.far[0].name;
}

bool Alike(const actors::PlanRegister& out, const actors::PlanRegister& in) {
  return out.bytes == in.bytes && out.slots == in.slots &&
         out.tokens_per_step == in.tokens_per_step && out.initial_tokens == in.initial_tokens;
}

absl::Status NotSymmetrical(const actors::Plan& plan, const actors::PlanRegister& r) {
  return Rejected({"W0705", absl::StrCat("rank ", plan.rank, ", register '", r.name, "'"),
                   "a plan in which all ranks of a stage do the same",
                   "a message that has no counterpart",
                   "--symmetry off, which simulates every rank, or sizes that divide evenly"});
}

}  // namespace

absl::StatusOr<RankPairs> PairRepresentatives(const std::vector<actors::Plan>& plans,
                                              const sbp::Places& places) {
  const auto key_of = [&places](const actors::Plan& plan, const actors::PlanRegister& r) {
    const int64_t peer_stage = places.PlaceOf(r.peer), peer = places.DeviceOf(r.peer);
    if (r.side == actors::RegisterSide::kInbound)
      return Key{peer_stage, plan.stage, peer, ReaderOf(plan, r)};
    return Key{plan.stage, peer_stage, peer, ReaderOf(plan, r)};
  };
  std::map<Key, std::vector<const actors::PlanRegister*>> inbound;
  for (const actors::Plan& plan : plans) {
    for (const actors::PlanRegister& r : plan.registers) {
      if (r.side == actors::RegisterSide::kInbound) inbound[key_of(plan, r)].push_back(&r);
    }
  }
  RankPairs pairs;
  for (const actors::Plan& plan : plans) {
    std::vector<RankId> ranks = places.ranks(plan.stage);
    std::sort(ranks.begin(), ranks.end());
    for (const RankId rank : ranks) pairs.stands_for[plan.rank].Add(rank);
  }
  std::map<Key, size_t> used;
  const auto loosen = [&pairs](const actors::Plan& plan, const actors::PlanRegister& r) {
    if (r.bytes * r.tokens_per_step > kScalarBytesMax) return NotSymmetrical(plan, r);
    pairs.loose.push_back(r.edge);
    return absl::OkStatus();
  };
  for (const actors::Plan& plan : plans) {
    for (const actors::PlanRegister& r : plan.registers) {
      if (r.side != actors::RegisterSide::kOutbound) continue;
      const Key key = key_of(plan, r);
      const auto found = inbound.find(key);
      const size_t k = used[key]++;
      if (found != inbound.end() && k < found->second.size() && Alike(r, *found->second[k])) {
        pairs.images[r.edge] = found->second[k]->edge;
      } else {
        WEIR_RETURN_IF_ERROR(loosen(plan, r));
      }
    }
  }
  std::set<EdgeId> reached;
  for (const auto& [out, in] : pairs.images) reached.insert(in);
  for (const actors::Plan& plan : plans) {
    for (const actors::PlanRegister& r : plan.registers) {
      if (r.side == actors::RegisterSide::kInbound && !reached.contains(r.edge))
        WEIR_RETURN_IF_ERROR(loosen(plan, r));
    }
  }
  return pairs;
}

}  // namespace weir::sim
