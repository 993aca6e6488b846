// This file has names and checks. boxing_planner.cc has the plans, build_exchange.cc the part of
// one rank in a step.
#include "sbp/boxing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "sbp/boxing_planner.h"
#include "sbp/rank_view.h"

namespace weir::sbp {
namespace {

absl::Status CheckPlacements(const TensorType& type, const Placement& from, const Placement& to,
                             const Places& places) {
  for (const Placement* placement : {&from, &to}) {
    if (placement->place < 0 || placement->place >= places.size()) {
      return Rejected({"W0221", absl::StrCat("boxing of ", ToText(type)),
                       absl::StrCat("a stage from 0 to ", places.size() - 1),
                       absl::StrCat(placement->place), "stage 0"});
    }
    WEIR_RETURN_IF_ERROR(ValidateLayout(placement->layout, type, places.mesh(placement->place)));
  }
  return absl::OkStatus();
}

// Returns the placement with B on the axes of one device, where all kinds mean the same.
Placement WithoutIdleAxes(Placement placement, const Places& places) {
  const Mesh& mesh = places.mesh(placement.place);
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) == 1) placement.layout[axis] = Sbp::B();
  }
  return placement;
}

}  // namespace

std::string Name(BoxingMethod method) {
  switch (method) {
    case BoxingMethod::kIdentity: return "identity";
    case BoxingMethod::kSlice: return "slice";
    case BoxingMethod::kToPartial: return "to-partial";
    case BoxingMethod::kReduceScatter: return "reduce-scatter";
    case BoxingMethod::kAllGather: return "all-gather";
    case BoxingMethod::kAllReduce: return "all-reduce";
    case BoxingMethod::kAllToAll: return "all-to-all";
    case BoxingMethod::kMove: return "move";
    case BoxingMethod::kMixed: return "mixed";
  }
  return "?";
}

std::string ToText(const BoxingStep& step, const Places& places) {
  const Mesh& mesh = places.mesh(step.from.place);
  std::string text = absl::StrCat(Name(step.method), ": stage ", step.from.place, " ",
                                  ToText(step.from.layout, mesh), " -> stage ", step.to.place, " ",
                                  ToText(step.to.layout, places.mesh(step.to.place)));
  if (step.flat) {
    absl::StrAppend(&text, ", flat over ",
                    absl::StrJoin(step.flat_axes, ", ", [&](std::string* out, int axis) {
                      out->append(mesh.axes()[axis].name);
                    }));
  }
  return text;
}

absl::StatusOr<std::vector<BoxingStep>> PlanBoxing(const TensorType& type, const Placement& from,
                                                   const Placement& to, const Places& places) {
  WEIR_RETURN_IF_ERROR(CheckPlacements(type, from, to, places));
  const Mesh &mesh = places.mesh(from.place), &after_mesh = places.mesh(to.place);
  const bool one_mesh = mesh == after_mesh;
  for (int axis = 0; one_mesh && axis < mesh.num_axes(); ++axis) {
    const Sbp &before = from.layout[axis], &after = to.layout[axis];
    if (before.is_partial() && after.is_partial() && before.combiner != after.combiner) {
      return Rejected(
          {"W0220",
           absl::StrCat("boxing of ", ToText(type), " from ", ToText(from.layout, mesh), " to ",
                        ToText(to.layout, mesh)),
           absl::StrCat(ToText(before), ", B or a split on axis ", mesh.axes()[axis].name),
           ToText(after), "a step through B"});
    }
  }
  const Placement plain_from = WithoutIdleAxes(from, places),
                  plain_to = WithoutIdleAxes(to, places);
  std::vector<BoxingStep> steps =
      one_mesh ? BoxingPlanner(type, mesh).Plan(plain_from, plain_to)
               : PlanBetweenMeshes(type, plain_from, plain_to, mesh, after_mesh);
  if (steps.empty()) return steps;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) == 1) steps.front().from.layout[axis] = from.layout[axis];
  }
  for (int axis = 0; axis < after_mesh.num_axes(); ++axis) {
    if (after_mesh.size(axis) == 1) steps.back().to.layout[axis] = to.layout[axis];
  }
  return steps;
}

int64_t BytesSent(const TensorType& type, const BoxingStep& step, const Places& places,
                  RankId rank) {
  if (places.PlaceOf(rank) != step.from.place) return 0;
  return RankView(type, step, places, rank).ElementsSent(rank) * SizeOf(type.dtype);
}

// Each device of other meshes gets its whole shard from the source, and splits part the tensor, so
// together the devices get the tensor once for each copy.
int64_t TotalBytes(const TensorType& type, const std::vector<BoxingStep>& steps,
                   const Places& places) {
  int64_t elements = 0;
  for (const BoxingStep& step : steps) {
    const Mesh& mesh = places.mesh(step.to.place);
    if (!JoinsMeshes(step, places)) {
      elements += ElementsSent(type, {step}, mesh);
      continue;
    }
    int64_t copies = 1;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (!step.to.layout[axis].is_split()) copies *= mesh.size(axis);
    }
    elements += type.num_elements() * copies;
  }
  return elements * SizeOf(type.dtype);
}

}  // namespace weir::sbp
