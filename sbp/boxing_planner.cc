#include "sbp/boxing_planner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/functional/function_ref.h"
#include "sbp/exchange_view.h"

namespace weir::sbp {
namespace {

bool InGroup(const BoxingStep& step, int axis) {
  return !step.flat ||
         std::find(step.flat_axes.begin(), step.flat_axes.end(), axis) != step.flat_axes.end();
}

// Returns the sum of `elements_of(view, step)` over the groups of all steps. Groups of a flat step
// differ only in the length of their row.
int64_t SumOverGroups(
    const TensorType& type, const BoxingSteps& steps, const Mesh& mesh,
    absl::FunctionRef<int64_t(const ExchangeView&, const BoxingStep&)> elements_of) {
  int64_t total = 0;
  for (const BoxingStep& step : steps) {
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
      const ExchangeView view(type, step, mesh, coords);
      auto [it, is_new] = by_length.emplace(view.type().num_elements(), 0);
      if (is_new) it->second = elements_of(view, step);
      total += it->second * copies;
    });
  }
  return total;
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

}  // namespace

bool MixesCombiners(const Layout& layout) {
  const Sbp* partial = nullptr;
  for (const Sbp& sbp : layout) {
    if (!sbp.is_partial()) continue;
    if (partial != nullptr && partial->combiner != sbp.combiner) return true;
    partial = &sbp;
  }
  return false;
}

int64_t ElementsSent(const TensorType& type, const BoxingSteps& steps, const Mesh& mesh) {
  return SumOverGroups(type, steps, mesh, [](const ExchangeView& view, const BoxingStep& step) {
    return view.TotalElementsSent(step.from.place == step.to.place);
  });
}

int64_t ElementsSentAmong(const TensorType& type, const BoxingSteps& steps, const Mesh& mesh,
                          const std::vector<bool>& agreed) {
  return SumOverGroups(type, steps, mesh, [&](const ExchangeView& view, const BoxingStep&) {
    return view.TotalElementsSentAmong(agreed);
  });
}

// Ranks that differ only in axes that no split touches send alike, and the rank at 0 stands for all
// of them. The exception is a broadcast that becomes partial, where only the first rank sends.
int64_t BusiestElements(const TensorType& type, const BoxingSteps& steps, const Mesh& mesh) {
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

BoxingSteps Chain(BoxingSteps first, const BoxingSteps& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

BoxingSteps BoxingPlanner::Plan(const Placement& from, const Placement& to) const {
  return from.place == to.place ? PlanSamePlace(from, to) : PlanAcrossPlaces(from, to);
}

// Axes that go P->B.
std::vector<int> BoxingPlanner::MergedToBroadcast(const Layout& from, const Layout& to) const {
  std::vector<int> axes;
  for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
    if (from[axis].is_partial() && to[axis].is_broadcast()) axes.push_back(axis);
  }
  return axes;
}
bool BoxingPlanner::HasMerged(const Layout& from, const Layout& to) const {
  for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
    if (IsMerged(from[axis], to[axis])) return true;
  }
  return false;
}

// Returns whether each rank keeps a part of its own shard, merged. In that case one exchange is
// cheapest.
bool BoxingPlanner::OnlyMergesInPlace(const Layout& from, const Layout& to) const {
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
BoxingSteps BoxingPlanner::Direct(const Placement& from, const Placement& to) const {
  if (from.place == to.place && IsIdentity(type_, from.layout, to.layout, mesh_)) return {};
  BoxingStep step{MethodOf(from, to, mesh_), from, to, false, {}};
  // Nested splits may shift when an outer split appears. In that case elements do move.
  bool local = step.method == BoxingMethod::kSlice || step.method == BoxingMethod::kToPartial;
  if (local && ElementsSent(type_, {step}, mesh_) > 0) step.method = BoxingMethod::kMixed;
  return {step};
}

// Returns the steps from `from`, partial over `axes`, to the broadcast of `axes` in `to_place`,
// through the flat split. If there are two ranks, each gives the other all of its summand
// instead: the bytes are the same, and there is one step.
BoxingSteps BoxingPlanner::Flat(const Placement& from, const std::vector<int>& axes,
                                int64_t to_place) const {
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
Layout BoxingPlanner::Merged(const Layout& from, const Layout& to, int tensor_axis,
                             MergeInto into) const {
  Layout layout = from;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (!IsMerged(from[axis], to[axis])) continue;
    bool own = into == MergeInto::kDestinationSplit && to[axis].is_split();
    layout[axis] = own ? to[axis] : Sbp::S(tensor_axis);
  }
  return layout;
}

void BoxingPlanner::Consider(BoxingSteps steps, std::vector<BoxingSteps>* candidates) const {
  for (const BoxingStep& step : steps) {
    if (MixesCombiners(step.from.layout) || MixesCombiners(step.to.layout)) return;
  }
  candidates->push_back(std::move(steps));
}

// Compares by total bytes, then steps, then the busiest rank, then the order given.
BoxingSteps BoxingPlanner::Cheapest(const std::vector<BoxingSteps>& candidates) const {
  using Key = std::pair<int64_t, size_t>;
  std::vector<Key> keys;
  for (const BoxingSteps& steps : candidates)
    keys.emplace_back(ElementsSent(type_, steps, mesh_), steps.size());
  const Key least = *std::min_element(keys.begin(), keys.end());
  std::vector<const BoxingSteps*> ties;
  for (size_t i = 0; i < candidates.size(); ++i) {
    bool seen = std::any_of(ties.begin(), ties.end(),
                            [&](const BoxingSteps* steps) { return *steps == candidates[i]; });
    if (keys[i] == least && !seen) ties.push_back(&candidates[i]);
  }
  if (ties.size() == 1) return *ties[0];
  return **std::min_element(
      ties.begin(), ties.end(), [&](const BoxingSteps* a, const BoxingSteps* b) {
        return BusiestElements(type_, *a, mesh_) < BusiestElements(type_, *b, mesh_);
      });
}

BoxingSteps BoxingPlanner::PlanSamePlace(const Placement& from, const Placement& to) const {
  const std::vector<int> gathered = MergedToBroadcast(from.layout, to.layout);
  if (gathered.empty() && !HasMerged(from.layout, to.layout)) return Direct(from, to);
  if (gathered.empty() && OnlyMergesInPlace(from.layout, to.layout)) return Direct(from, to);
  std::vector<BoxingSteps> candidates;
  if (gathered.empty()) {
    candidates.push_back(Direct(from, to));
  } else {
    Placement after_flat = from;
    Placement before_flat = to;
    for (int axis : gathered) {
      after_flat.layout[axis] = to.layout[axis];
      before_flat.layout[axis] = from.layout[axis];
    }
    const BoxingSteps flat_last = Flat(before_flat, gathered, to.place);
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

BoxingSteps BoxingPlanner::PlanAcrossPlaces(const Placement& from, const Placement& to) const {
  if (!HasMerged(from.layout, to.layout)) return Direct(from, to);
  const std::vector<int> gathered = MergedToBroadcast(from.layout, to.layout);
  Layout only_gathered = from.layout;
  for (int axis : gathered) only_gathered[axis] = Sbp::B();
  std::vector<BoxingSteps> candidates;
  if (only_gathered == to.layout || type_.dims.empty()) {
    BoxingSteps flat = Flat(from, gathered, to.place);
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

// Partials become splits if they can, because a sum into splits sends least. Between plans that
// send as much, the fewest steps win, then the plan whose busiest rank sends least.
BoxingSteps PlanBetweenMeshes(const TensorType& type, const Placement& from, const Placement& to,
                              const Mesh& from_mesh, const Mesh& to_mesh) {
  const auto without_partials = [](Placement placement, const Sbp& instead) {
    for (Sbp& sbp : placement.layout) {
      if (sbp.is_partial()) sbp = instead;
    }
    return placement;
  };
  const BoxingPlanner source(type, from_mesh);
  std::optional<BoxingSteps> merge;
  Placement merged;
  std::tuple<int64_t, size_t, int64_t> least;
  const auto consider = [&](const Sbp& instead) {
    const Placement candidate = without_partials(from, instead);
    BoxingSteps steps = source.Plan(from, candidate);
    const std::tuple key(ElementsSent(type, steps, from_mesh), steps.size(),
                         BusiestElements(type, steps, from_mesh));
    if (merge.has_value() && key >= least) return;
    merge = std::move(steps);
    merged = candidate;
    least = key;
  };
  for (int k = 0; k < static_cast<int>(type.dims.size()); ++k) consider(Sbp::S(k));
  consider(Sbp::B());
  const Placement arrived = without_partials(to, Sbp::B());
  const BoxingSteps move = {BoxingStep{BoxingMethod::kMove, merged, arrived, false, {}}};
  return Chain(Chain(*std::move(merge), move), BoxingPlanner(type, to_mesh).Plan(arrived, to));
}

}  // namespace weir::sbp
