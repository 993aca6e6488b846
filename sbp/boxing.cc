// This file has names and checks. boxing_planner.cc has the plans, build_exchange.cc the part of
// one rank in a step.
#include "sbp/boxing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "sbp/boxing_planner.h"
#include "sbp/exchange_view.h"

namespace weir::sbp {
namespace {

// Returns the mesh over which both placements of `type` have their layouts.
absl::StatusOr<Mesh> CommonMesh(const TensorType& type, const Placement& from, const Placement& to,
                                const Places& places) {
  const std::string where = absl::StrCat("boxing of ", ToText(type));
  for (const Placement* placement : {&from, &to}) {
    if (placement->place < 0 || placement->place >= places.size()) {
      return Rejected({"W0221", where, absl::StrCat("a stage from 0 to ", places.size() - 1),
                       absl::StrCat(placement->place), "stage 0"});
    }
    WEIR_RETURN_IF_ERROR(ValidateLayout(placement->layout, type, places.mesh(placement->place)));
  }
  const Mesh &mesh = places.mesh(from.place), &other = places.mesh(to.place);
  if (mesh == other) return mesh;
  return Rejected({"W0221", where, absl::StrCat("stages of one mesh, ", mesh.ToText()),
                   other.ToText(), "stages of equal meshes"});
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
  WEIR_ASSIGN_OR_RETURN(const Mesh mesh, CommonMesh(type, from, to, places));
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
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
  // On an axis of one rank all kinds mean the same.
  Placement plain_from = from, plain_to = to;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) == 1) plain_from.layout[axis] = plain_to.layout[axis] = Sbp::B();
  }
  std::vector<BoxingStep> steps = BoxingPlanner(type, mesh).Plan(plain_from, plain_to);
  for (int axis = 0; axis < mesh.num_axes() && !steps.empty(); ++axis) {
    if (mesh.size(axis) > 1) continue;
    steps.front().from.layout[axis] = from.layout[axis];
    steps.back().to.layout[axis] = to.layout[axis];
  }
  return steps;
}

int64_t BytesSent(const TensorType& type, const BoxingStep& step, const Places& places,
                  RankId rank) {
  if (places.PlaceOf(rank) != step.from.place) return 0;
  const Mesh& mesh = places.mesh(step.from.place);
  const Coords coords = places.CoordsOf(rank);
  ExchangeView view(type, step, mesh, coords);
  return view.ElementsSent(coords, step.from.place == step.to.place) * SizeOf(type.dtype);
}

int64_t TotalBytes(const TensorType& type, const std::vector<BoxingStep>& steps,
                   const Places& places) {
  if (steps.empty()) return 0;
  return ElementsSent(type, steps, places.mesh(steps[0].from.place)) * SizeOf(type.dtype);
}

}  // namespace weir::sbp
