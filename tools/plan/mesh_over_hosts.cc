#include "tools/plan/mesh_over_hosts.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/unit_text.h"
#include "sbp/places.h"

namespace weir::plan {
namespace {

// Another order is named if it sends at most this share of the bytes between hosts.
constexpr double kMuchLess = 0.7;
constexpr size_t kItemsTried = 4000;  // items of the program, for each order
constexpr int kAxesTried = 3;         // six orders

int64_t NumHosts(const compiler::LogicalPlan& plan) {
  return plan.places.HostOf(RankId(static_cast<int32_t>(plan.places.num_ranks()) - 1)) + 1;
}

double BytesBetweenHosts(const std::vector<BoxingCost>& boxings) {
  return std::accumulate(
      boxings.begin(), boxings.end(), 0.0,
      [](double sum, const BoxingCost& boxing) { return sum + boxing.bytes_between_hosts; });
}

// Returns "tp inside them, dp between them".
std::string AxesText(const compiler::LogicalPlan& plan, const sbp::HostCut& cut) {
  std::vector<std::string> inside, between, both, parts;
  const bool stages_share = plan.places.HostOf(plan.places.RankAt(0, 0)) ==
                            plan.places.HostOf(plan.places.RankAt(plan.places.size() - 1, 0));
  if (plan.places.size() > 1) (stages_share ? inside : between).push_back(sbp::kPipelineAxis);
  for (int axis = 0; axis < plan.stage_mesh.num_axes(); ++axis) {
    if (plan.stage_mesh.size(axis) == 1) continue;
    const std::vector<int>& cut_axes = cut.axes[axis];
    std::vector<std::string>* const kind = cut_axes.size() > 1                 ? &both
                                           : cut.within_host[cut_axes.front()] ? &inside
                                                                               : &between;
    kind->push_back(plan.stage_mesh.axes()[axis].name);
  }
  const auto add = [&](const std::vector<std::string>& names, const char* where) {
    if (!names.empty()) parts.push_back(absl::StrCat(absl::StrJoin(names, " and "), where));
  };
  add(inside, " inside them");
  add(both, " inside and between them");
  add(between, " between them");
  return absl::StrJoin(parts, ", ");
}

}  // namespace

std::string HostsText(const compiler::LogicalPlan& plan, const std::vector<BoxingCost>& boxings) {
  const int64_t hosts = NumHosts(plan);
  if (hosts < 2) return "";
  const int64_t devices = plan.job.mesh().devices_per_host();
  std::string text = absl::StrCat(hosts, " of ", devices, devices == 1 ? " device" : " devices");
  if (const sbp::HostCut* cut = plan.places.host_cut(); cut != nullptr) {
    absl::StrAppend(&text, "; ", AxesText(plan, *cut));
  } else if (devices > 1) {
    absl::StrAppend(&text, ", which do not cut the mesh evenly, so transfers know no hosts");
  }
  if (const double bytes = BytesBetweenHosts(boxings); bytes > 0)
    absl::StrAppend(&text, "; ", BytesText(bytes), " a step between hosts");
  return text;
}

std::optional<BetterMesh> FindBetterMesh(const compiler::LogicalPlan& plan,
                                         const std::vector<BoxingCost>& boxings,
                                         const compiler::CostModel& costs) {
  const int num_axes = plan.mesh.num_axes();
  const double now = BytesBetweenHosts(boxings);
  if (NumHosts(plan) < 2 || now == 0 || num_axes < 2 || num_axes > kAxesTried ||
      plan.module.items.size() > kItemsTried)
    return std::nullopt;
  std::optional<BetterMesh> best;
  std::vector<int> order(num_axes);
  std::iota(order.begin(), order.end(), 0);
  while (std::next_permutation(order.begin(), order.end())) {
    proto::Job job = plan.job;
    job.mutable_mesh()->clear_axis();
    for (int axis : order) *job.mutable_mesh()->add_axis() = plan.job.mesh().axis(axis);
    compiler::CompileOptions options;
    options.mode = plan.mode;
    options.costs = &costs;
    const absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> other =
        compiler::CompileJob(job, options);
    if (!other.ok()) continue;
    const absl::StatusOr<std::vector<BoxingCost>> other_boxings = CostsOfBoxings(**other);
    if (!other_boxings.ok()) continue;
    const double bytes = BytesBetweenHosts(*other_boxings);
    if (bytes > kMuchLess * now || (best.has_value() && bytes >= best->bytes)) continue;
    best = BetterMesh{(*other)->mesh.ToText(), bytes, now};
  }
  return best;
}

}  // namespace weir::plan
