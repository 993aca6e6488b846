// This file has names, costs and plans. build_exchange.cc has the part of one rank in a step.
#include "sbp/boxing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "sbp/exchange_view.h"

namespace weir::sbp {
namespace {

using Steps = std::vector<BoxingStep>;

bool IsMerged(const Sbp& from, const Sbp& to) { return from.is_partial() && !to.is_partial(); }

bool MixesCombiners(const Layout& layout) {
  const Sbp* partial = nullptr;
  for (const Sbp& sbp : layout) {
    if (!sbp.is_partial()) continue;
    if (partial != nullptr && partial->combiner != sbp.combiner) return true;
    partial = &sbp;
  }
  return false;
}

bool InGroup(const BoxingStep& step, int axis) {
  return !step.flat ||
         std::find(step.flat_axes.begin(), step.flat_axes.end(), axis) != step.flat_axes.end();
}

int64_t TotalElements(const TensorType& type, const Steps& steps, const Mesh& mesh) {
  int64_t total = 0;
  for (const BoxingStep& step : steps) {
    const bool same_place = step.from.place == step.to.place;
    // Groups of a flat step differ only in the length of their row.
    std::vector<int> varying;
    int64_t copies = 1;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (InGroup(step, axis)) continue;
      if (step.from.layout[axis].is_split()) {
        varying.push_back(axis);
      } else {
        copies *= mesh.size(axis);
      }
    }
    std::map<int64_t, int64_t> by_length;
    Coords coords(mesh.num_axes(), 0);
    ForEachCoords(mesh, varying, &coords, [&] {
      ExchangeView view(type, step, mesh, coords);
      auto [it, is_new] = by_length.emplace(view.type().num_elements(), 0);
      if (is_new) it->second = view.TotalElementsSent(same_place);
      total += it->second * copies;
    });
  }
  return total;
}

// Returns the most elements that one rank sends in a step, summed over steps. Ranks that differ
// only in axes that no split touches send alike, and the rank at 0 stands for all of them. The
// exception is a broadcast that becomes partial, where only the first rank sends.
int64_t BusiestElements(const TensorType& type, const Steps& steps, const Mesh& mesh) {
  int64_t sum = 0;
  for (const BoxingStep& step : steps) {
    std::vector<int> varying;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (step.from.layout[axis].is_split() || step.to.layout[axis].is_split())
        varying.push_back(axis);
    }
    std::optional<ExchangeView> view;
    int64_t busiest = 0;
    Coords coords(mesh.num_axes(), 0);
    ForEachCoords(mesh, varying, &coords, [&] {
      // A flat view belongs to one group.
      if (step.flat || !view.has_value()) view.emplace(type, step, mesh, coords);
      busiest = std::max(busiest, view->ElementsSent(coords, step.from.place == step.to.place));
    });
    sum += busiest;
  }
  return sum;
}

// Returns the step's method, given the changes on its axes.
BoxingMethod MethodOf(const Placement& from, const Placement& to, const Mesh& mesh) {
  if (from.place != to.place) return BoxingMethod::kMove;
  std::optional<BoxingMethod> method;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const Sbp &before = from.layout[axis], &after = to.layout[axis];
    if (before == after) continue;
    BoxingMethod change = BoxingMethod::kMixed;
    if (after.is_partial()) {
      change = BoxingMethod::kToPartial;
    } else if (before.is_partial()) {
      change = after.is_split() ? BoxingMethod::kReduceScatter : BoxingMethod::kAllReduce;
    } else if (before.is_broadcast()) {
      change = BoxingMethod::kSlice;
    } else if (before.is_split()) {
      change = after.is_split() ? BoxingMethod::kAllToAll : BoxingMethod::kAllGather;
    }
    if (method.has_value() && *method != change) return BoxingMethod::kMixed;
    method = change;
  }
  return method.value_or(BoxingMethod::kIdentity);
}

// Returns whether all ranks keep the shards that they have.
bool IsIdentity(const TensorType& type, const Layout& from, const Layout& to, const Mesh& mesh) {
  if (from == to) return true;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (from[axis] != to[axis] && (from[axis].is_partial() || to[axis].is_partial())) return false;
  }
  for (int64_t i = 0; i < mesh.num_ranks(); ++i) {
    Coords coords = mesh.CoordsOf(i);
    if (ShardRect(type, from, mesh, coords) != ShardRect(type, to, mesh, coords)) return false;
  }
  return true;
}

// A Planner makes plans between layouts that are B on all mesh axes of size 1.
class Planner {
 public:
  Planner(const TensorType& type, const Mesh& mesh) : type_(type), mesh_(mesh) {}

  Steps Plan(const Placement& from, const Placement& to) const {
    return from.place == to.place ? PlanSamePlace(from, to) : PlanAcrossPlaces(from, to);
  }

 private:
  // Axes that go P->B.
  std::vector<int> MergedToBroadcast(const Layout& from, const Layout& to) const {
    std::vector<int> axes;
    for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
      if (from[axis].is_partial() && to[axis].is_broadcast()) axes.push_back(axis);
    }
    return axes;
  }
  bool HasMerged(const Layout& from, const Layout& to) const {
    for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
      if (IsMerged(from[axis], to[axis])) return true;
    }
    return false;
  }

  // Returns whether each rank keeps a part of its own shard, merged. In that case one exchange is
  // cheapest.
  bool OnlyMergesInPlace(const Layout& from, const Layout& to) const {
    for (size_t axis = 0; axis < from.size(); ++axis) {
      if (from[axis] == to[axis]) continue;
      if (!IsMerged(from[axis], to[axis])) return false;
      // A split inside the new split would shift.
      for (size_t inner = axis + 1; inner < from.size(); ++inner) {
        if (to[axis].is_split() && from[inner].is_split() && from[inner].axis == to[axis].axis)
          return false;
      }
    }
    return true;
  }

  // Returns one exchange, or none if nothing changes.
  Steps Direct(const Placement& from, const Placement& to) const {
    if (from.place == to.place && IsIdentity(type_, from.layout, to.layout, mesh_)) return {};
    BoxingStep step{MethodOf(from, to, mesh_), from, to, false, {}};
    // Nested splits may shift when an outer split appears. In that case elements do move.
    bool local = step.method == BoxingMethod::kSlice || step.method == BoxingMethod::kToPartial;
    if (local && TotalElements(type_, {step}, mesh_) > 0) step.method = BoxingMethod::kMixed;
    return {step};
  }

  Steps Chain(Steps first, const Steps& second) const {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  // Returns the steps from `from`, partial over `axes`, to the broadcast of `axes` in `to_place`,
  // through the flat split. If there are two ranks, each gives the other all of its summand
  // instead: the bytes are the same, and there is one step.
  Steps Flat(const Placement& from, const std::vector<int>& axes, int64_t to_place) const {
    Placement split = from, whole = from;
    whole.place = to_place;
    int64_t group = 1;
    for (int axis : axes) {
      split.layout[axis] = Sbp::S(0);
      whole.layout[axis] = Sbp::B();
      group *= mesh_.size(axis);
    }
    if (group == 2 && to_place == from.place) return Direct(from, whole);
    BoxingMethod second = to_place == from.place ? BoxingMethod::kAllGather : BoxingMethod::kMove;
    return {BoxingStep{BoxingMethod::kReduceScatter, from, split, true, axes},
            BoxingStep{second, split, whole, true, axes}};
  }

  // Returns `from` with its merged axes split: as `to` splits them, where `to` does and `into` asks
  // for it, else along `tensor_axis`.
  enum class MergeInto { kDestinationSplit, kTensorAxis };
  Layout Merged(const Layout& from, const Layout& to, int tensor_axis, MergeInto into) const {
    Layout layout = from;
    for (size_t axis = 0; axis < from.size(); ++axis) {
      if (!IsMerged(from[axis], to[axis])) continue;
      bool own = into == MergeInto::kDestinationSplit && to[axis].is_split();
      layout[axis] = own ? to[axis] : Sbp::S(tensor_axis);
    }
    return layout;
  }

  void Consider(Steps steps, std::vector<Steps>* candidates) const {
    for (const BoxingStep& step : steps) {
      if (MixesCombiners(step.from.layout) || MixesCombiners(step.to.layout)) return;
    }
    candidates->push_back(std::move(steps));
  }

  // Compares by total bytes, then steps, then the busiest rank, then the order given.
  Steps Cheapest(const std::vector<Steps>& candidates) const {
    using Key = std::pair<int64_t, size_t>;
    std::vector<Key> keys;
    for (const Steps& steps : candidates)
      keys.emplace_back(TotalElements(type_, steps, mesh_), steps.size());
    const Key least = *std::min_element(keys.begin(), keys.end());
    std::vector<const Steps*> ties;
    for (size_t i = 0; i < candidates.size(); ++i) {
      bool seen = std::any_of(ties.begin(), ties.end(),
                              [&](const Steps* steps) { return *steps == candidates[i]; });
      if (keys[i] == least && !seen) ties.push_back(&candidates[i]);
    }
    if (ties.size() == 1) return *ties[0];
    return **std::min_element(ties.begin(), ties.end(), [&](const Steps* a, const Steps* b) {
      return BusiestElements(type_, *a, mesh_) < BusiestElements(type_, *b, mesh_);
    });
  }

  Steps PlanSamePlace(const Placement& from, const Placement& to) const {
    const std::vector<int> gathered = MergedToBroadcast(from.layout, to.layout);
    if (gathered.empty() && !HasMerged(from.layout, to.layout)) return Direct(from, to);
    if (gathered.empty() && OnlyMergesInPlace(from.layout, to.layout)) return Direct(from, to);
    std::vector<Steps> candidates;
    if (gathered.empty()) {
      candidates.push_back(Direct(from, to));
    } else {
      Placement after_flat = from;
      Placement before_flat = to;
      for (int axis : gathered) {
        after_flat.layout[axis] = to.layout[axis];
        before_flat.layout[axis] = from.layout[axis];
      }
      const Steps flat_last = Flat(before_flat, gathered, to.place);
      if (IsIdentity(type_, from.layout, before_flat.layout, mesh_)) return flat_last;
      Consider(Chain(Flat(from, gathered, from.place), PlanSamePlace(after_flat, to)), &candidates);
      if (!MixesCombiners(before_flat.layout)) {
        Consider(Chain(PlanSamePlace(from, before_flat), flat_last), &candidates);
      }
    }
    for (int k = 0; k < static_cast<int>(type_.dims.size()); ++k) {
      for (MergeInto into : {MergeInto::kDestinationSplit, MergeInto::kTensorAxis}) {
        Placement merged{Merged(from.layout, to.layout, k, into), from.place};
        Consider(Chain(Direct(from, merged), Direct(merged, to)), &candidates);
      }
      if (gathered.empty()) continue;
      Placement scattered = to;
      for (int axis : gathered) scattered.layout[axis] = Sbp::S(k);
      Consider(Chain(PlanSamePlace(from, scattered), Direct(scattered, to)), &candidates);
    }
    return Cheapest(candidates);
  }

  Steps PlanAcrossPlaces(const Placement& from, const Placement& to) const {
    if (!HasMerged(from.layout, to.layout)) return Direct(from, to);
    const std::vector<int> gathered = MergedToBroadcast(from.layout, to.layout);
    Layout only_gathered = from.layout;
    for (int axis : gathered) only_gathered[axis] = Sbp::B();
    std::vector<Steps> candidates;
    if (only_gathered == to.layout || type_.dims.empty()) {
      Steps flat = Flat(from, gathered, to.place);
      // A scalar has no splits but the flat one, so a scalar arrives as a broadcast and then
      // changes.
      if (only_gathered != to.layout) flat = Chain(flat, Direct(flat.back().to, to));
      candidates.push_back(std::move(flat));
    }
    for (int k = 0; k < static_cast<int>(type_.dims.size()); ++k) {
      for (MergeInto into : {MergeInto::kDestinationSplit, MergeInto::kTensorAxis}) {
        Placement merged{Merged(from.layout, to.layout, k, into), from.place};
        Consider(Chain(Direct(from, merged), Direct(merged, to)), &candidates);
        // Copies on the source's devices merge a part each, where otherwise each copy would merge
        // all.
        for (size_t axis = 0; axis < merged.layout.size(); ++axis) {
          if (!from.layout[axis].is_broadcast()) continue;
          bool own = into == MergeInto::kDestinationSplit && to.layout[axis].is_split();
          merged.layout[axis] = own ? to.layout[axis] : Sbp::S(k);
        }
        Consider(Chain(Direct(from, merged), Direct(merged, to)), &candidates);
      }
    }
    return Cheapest(candidates);
  }

  const TensorType& type_;
  const Mesh& mesh_;
};

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
  std::vector<BoxingStep> steps = Planner(type, mesh).Plan(plain_from, plain_to);
  for (int axis = 0; axis < mesh.num_axes() && !steps.empty(); ++axis) {
    if (mesh.size(axis) > 1) continue;
    steps.front().from.layout[axis] = from.layout[axis];
    steps.back().to.layout[axis] = to.layout[axis];
  }
  return steps;
}

int64_t BytesSent(const TensorType& type, const BoxingStep& step, const Places& places,
                  int64_t rank) {
  if (places.PlaceOf(rank) != step.from.place) return 0;
  const Mesh& mesh = places.mesh(step.from.place);
  const Coords coords = places.CoordsOf(rank);
  ExchangeView view(type, step, mesh, coords);
  return view.ElementsSent(coords, step.from.place == step.to.place) * SizeOf(type.dtype);
}

int64_t TotalBytes(const TensorType& type, const std::vector<BoxingStep>& steps,
                   const Places& places) {
  if (steps.empty()) return 0;
  return TotalElements(type, steps, places.mesh(steps[0].from.place)) * SizeOf(type.dtype);
}

}  // namespace weir::sbp
