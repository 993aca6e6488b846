#include "tools/sim/rank_classes.h"

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

// From stage, to stage, place of the other end in its stage's mesh, and what is sent. Registers of one key keep the order
// in which the plan has them, which is that of the program.
using Key = std::tuple<int64_t, int64_t, int64_t, std::string>;

// "reduce-scatter x rank 2 to 0" without the ranks.
std::string WithoutRanks(const Plan& plan, const PlanRegister& r) {
  const bool in = r.side == RegisterSide::kInbound;
  const std::string ends = absl::StrCat(" rank ", in ? r.peer : plan.rank, " to ", in ? plan.rank : r.peer);
  return std::string(absl::StripSuffix(r.name, ends));
}

bool Alike(const PlanRegister& out, const PlanRegister& in) {
  return out.bytes == in.bytes && out.slots == in.slots && out.tokens_per_step == in.tokens_per_step &&
         out.initial_tokens == in.initial_tokens;
}

absl::Status NotSymmetrical(const Plan& plan, const PlanRegister& r) {
  return Rejected({"W0705", absl::StrCat("rank ", plan.rank, ", register '", r.name, "'"),
                   "a plan in which all ranks of a stage do the same", "a message that has no counterpart",
                   "--symmetry off, which simulates every rank, or sizes that divide evenly"});
}

}  // namespace

absl::StatusOr<std::map<uint64_t, uint64_t>> PairRepresentatives(const std::vector<Plan>& plans, const Mesh& mesh) {
  std::map<Key, std::vector<const PlanRegister*>> inbound;
  size_t num_inbound = 0;
  for (const Plan& plan : plans) {
    for (const PlanRegister& r : plan.registers) {
      if (r.side != RegisterSide::kInbound) continue;
      inbound[{mesh.StageOf(r.peer), plan.stage, mesh.StageRankOf(r.peer), WithoutRanks(plan, r)}].push_back(&r);
      ++num_inbound;
    }
  }
  std::map<uint64_t, uint64_t> images;
  std::map<Key, size_t> used;
  for (const Plan& plan : plans) {
    for (const PlanRegister& r : plan.registers) {
      if (r.side != RegisterSide::kOutbound) continue;
      const Key key{plan.stage, mesh.StageOf(r.peer), mesh.StageRankOf(r.peer), WithoutRanks(plan, r)};
      const auto found = inbound.find(key);
      const size_t k = used[key]++;
      if (found == inbound.end() || k >= found->second.size() || !Alike(r, *found->second[k])) return NotSymmetrical(plan, r);
      images[r.edge] = found->second[k]->edge;
    }
  }
  if (images.size() == num_inbound) return images;
  for (const Plan& plan : plans) {  // somebody receives what nobody like them sends
    for (const PlanRegister& r : plan.registers) {
      if (r.side != RegisterSide::kInbound) continue;
      const Key key{mesh.StageOf(r.peer), plan.stage, mesh.StageRankOf(r.peer), WithoutRanks(plan, r)};
      if (used[key] < inbound[key].size()) return NotSymmetrical(plan, r);
    }
  }
  return images;
}

}  // namespace weir
