#include "tools/plan/settle_collectives.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/compile.h"
#include "compiler/cost/boxing_cost.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/stage_meshes.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/message_size.h"
#include "runtime/base/unit_text.h"

namespace weir::plan {
namespace {

// The sizes of tensors that are compared: powers of two, from the first to the last.
constexpr int64_t kBytesFirst = int64_t{1} << 10;
constexpr int64_t kBytesLast = int64_t{1} << 30;

// The devices along one axis of the mesh, with the first device.
struct AxisGroup {
  int axis = 0;
  std::vector<RankId> ranks;
  compiler::LinkLevel level = compiler::LinkLevel::kWithinHost;
};

std::vector<AxisGroup> GroupsOf(const sbp::Places& places, const compiler::CostModel& costs) {
  const sbp::Mesh& mesh = places.mesh(0);
  std::vector<AxisGroup> groups;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) < 2) continue;
    AxisGroup& group = groups.emplace_back();
    group.axis = axis;
    for (const RankId rank : places.ranks(0)) {
      sbp::Coords coords = places.CoordsOf(rank);
      coords[axis] = 0;
      const bool differs_along_axis =
          std::all_of(coords.begin(), coords.end(), [](auto coord) { return coord == 0; });
      if (differs_along_axis) group.ranks.push_back(rank);
    }
    for (const RankId rank : group.ranks) {
      if (costs.LevelBetween(group.ranks[0], rank) == compiler::LinkLevel::kBetweenHosts)
        group.level = compiler::LinkLevel::kBetweenHosts;
    }
  }
  return groups;
}

// Compares the two ways for tensors that one device of the group has whole before or after.
class Comparison {
 public:
  Comparison(const compiler::CostModel& costs, const sbp::Places& places, int64_t chunk_bytes_max)
      : costs_(costs), places_(places), exchanges_(&costs, places, chunk_bytes_max) {}

  bool GroupIsCheaper(const AxisGroup& group, int64_t bytes) {
    const auto size = static_cast<int64_t>(group.ranks.size());
    const int64_t elements = std::max<int64_t>(1, bytes / 4 / size) * size;
    const sbp::TensorType type{DType::kF32, {{"elements", elements, 1}}};
    const sbp::Layout whole = sbp::Broadcast(places_.mesh(0));
    sbp::Layout split = whole, partial = whole;
    split[group.axis] = sbp::Sbp::S(0);
    partial[group.axis] = sbp::Sbp::P();
    return CollectiveNs(Collective::Kind::kAllGather, group, type.bytes() / size) <=
               exchanges_.Of(type, split, whole).AloneNs() &&
           CollectiveNs(Collective::Kind::kReduceScatter, group, type.bytes() / size) <=
               exchanges_.Of(type, partial, split).AloneNs();
  }

 private:
  // As compiler/rhythm prices the act of a collective.
  double CollectiveNs(Collective::Kind kind, const AxisGroup& group, int64_t shard_bytes) const {
    Collective collective;
    collective.kind = kind;
    collective.ranks = group.ranks;
    const auto bytes = static_cast<int64_t>(RingBytes(collective, shard_bytes));
    return static_cast<double>(costs_.ActNs() + costs_.LatencyNs(group.level, bytes));
  }

  const compiler::CostModel& costs_;
  const sbp::Places places_;
  compiler::BoxingCosts exchanges_;
};

std::string GroupsText(const std::vector<AxisGroup>& groups, const sbp::Mesh& mesh) {
  std::vector<std::string> names;
  for (const AxisGroup& group : groups)
    names.push_back(absl::StrCat(mesh.axes()[group.axis].name, "=", group.ranks.size()));
  return absl::StrJoin(names, ", ");
}

// Returns the least size from which on groups are cheaper at every size; nothing: they are not.
std::optional<int64_t> BytesFrom(const std::vector<AxisGroup>& groups, Comparison* comparison) {
  std::optional<int64_t> from;
  for (int64_t bytes = kBytesLast; bytes >= kBytesFirst; bytes /= 2) {
    const bool all_cheaper = std::all_of(groups.begin(), groups.end(), [&](const AxisGroup& group) {
      return comparison->GroupIsCheaper(group, bytes);
    });
    if (!all_cheaper) break;
    from = bytes;
  }
  return from;
}

SettledCollectives Exchanges(const std::string& why, proto::Job* job) {
  job->mutable_runtime()->set_collectives(proto::Runtime::EXCHANGES);
  job->mutable_runtime()->clear_collective_kib_min();
  return {absl::StrCat("collectives: exchanges (", why, ")")};
}

}  // namespace

absl::StatusOr<SettledCollectives> SettleCollectives(const compiler::CostModel& costs,
                                                     const std::string& obstacle, proto::Job* job) {
  if (job->runtime().collectives() != proto::Runtime::AUTO) return SettledCollectives();
  const std::string& device = job->runtime().device();
  if (device != "cuda" && device != "cuda-emulated")
    return Exchanges("NCCL is for GPUs; the devices are CPUs", job);
  if (!obstacle.empty()) return Exchanges(absl::StrCat("no NCCL here: ", obstacle), job);
  if (compiler::HasStageMeshes(*job)) {
    return Exchanges(
        "stages have meshes of their own, whose groups are not compared; NCCL on request", job);
  }
  compiler::CompileOptions options;
  options.mode = compiler::ModeOf(*job);
  options.program_only = true;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::LogicalPlan> plan,
                        compiler::CompileJob(*job, options));
  const std::vector<AxisGroup> groups = GroupsOf(plan->places, costs);
  if (groups.empty()) return Exchanges("no two devices share a stage", job);
  Comparison comparison(costs, plan->places, plan->settings.runtime.chunk_bytes_max);
  const std::optional<int64_t> from = BytesFrom(groups, &comparison);
  const std::string of_groups = GroupsText(groups, plan->stage_mesh);
  if (!from.has_value()) {
    return Exchanges(
        absl::StrCat("by the costs of the plan they are cheaper than NCCL for groups of ",
                     of_groups),
        job);
  }
  const int64_t asked = job->runtime().collective_kib_min();  // a bound of the job stays
  const int64_t bytes = std::max(*from, asked * 1024);
  job->mutable_runtime()->set_collectives(proto::Runtime::NCCL);
  job->mutable_runtime()->set_collective_kib_min(static_cast<int32_t>(bytes / 1024));
  return SettledCollectives{
      absl::StrCat("collectives: NCCL for tensors of ", BytesText(static_cast<double>(bytes)),
                   " and more, where the costs of the plan make groups of ", of_groups,
                   " cheaper than exchanges; exchanges for smaller ones")};
}

}  // namespace weir::plan
