#include "sbp/boxing_over_hosts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/status.h"
#include "sbp/boxing_planner.h"
#include "sbp/exchange_view.h"
#include "sbp/rank_view.h"

namespace weir::sbp {
namespace {

// A View shows a tensor with other dimensions, and its layouts over the cut mesh.
struct View {
  TensorType type;
  Placement from, to;
};

// Returns the layout with the entry of each axis on all parts of the axis. On an axis of one device
// all kinds mean the same.
Layout OverCut(const Layout& layout, const HostCut& cut, int64_t place) {
  const Mesh& mesh = cut.places.mesh(place);
  Layout over(mesh.num_axes());
  for (size_t axis = 0; axis < layout.size(); ++axis) {
    for (int part : cut.axes[axis]) over[part] = mesh.size(part) == 1 ? Sbp::B() : layout[axis];
  }
  return over;
}

// Returns the mesh axes that split tensor axis t, outermost first.
std::vector<int> SplittersOf(const Layout& layout, int t) {
  std::vector<int> axes;
  for (int axis = 0; axis < static_cast<int>(layout.size()); ++axis) {
    if (layout[axis].is_split() && layout[axis].axis == t) axes.push_back(axis);
  }
  return axes;
}

// Returns whether `axes` cut the dimension into equal parts, so that it does not matter whether an
// axis cuts it at once or in two nested cuts.
bool CutsEvenly(const TensorDim& dim, const Layout& layout, const std::vector<int>& axes,
                const Mesh& mesh) {
  int64_t parts = 1;
  for (int axis : axes) {
    if (!layout[axis].offsets.empty()) return false;
    parts *= mesh.size(axis);
  }
  return dim.size / dim.unit % parts == 0;
}

// Gives each mesh axis that splits a tensor axis a dimension of its own. What a rank holds while
// only some of the axes are split is no interval of the tensor axis, but one of the view.
std::optional<View> ViewOfDims(const TensorType& type, const Placement& from, const Placement& to,
                               const Mesh& mesh) {
  View view{{type.dtype, {}}, from, to};
  for (int t = 0; t < static_cast<int>(type.dims.size()); ++t) {
    const TensorDim& dim = type.dims[t];
    std::vector<int> before = SplittersOf(from.layout, t), after = SplittersOf(to.layout, t);
    if ((before.size() > 1 && !CutsEvenly(dim, from.layout, before, mesh)) ||
        (after.size() > 1 && !CutsEvenly(dim, to.layout, after, mesh)))
      return std::nullopt;
    const std::vector<int>&longer = before.size() > after.size() ? before : after,
          &shorter = before.size() > after.size() ? after : before;
    TensorDim rest = dim;
    int next = static_cast<int>(view.type.dims.size());
    const bool nested =
        longer.size() > 1 && std::equal(shorter.begin(), shorter.end(), longer.begin()) &&
        CutsEvenly(dim, from.layout, before, mesh) && CutsEvenly(dim, to.layout, after, mesh);
    for (size_t i = 0; i < longer.size(); ++i) {
      if (i < before.size()) view.from.layout[before[i]].axis = next;
      if (i < after.size()) view.to.layout[after[i]].axis = next;
      if (!nested) continue;
      const MeshAxis& splitter = mesh.axes()[longer[i]];
      view.type.dims.push_back({dim.name + "." + splitter.name, splitter.size, 1});
      rest.size /= splitter.size;
      ++next;
    }
    view.type.dims.push_back(rest);
  }
  return view;
}

// Shows equal shards as rows, if all that changes is that partials become broadcasts.
std::optional<View> ViewOfRows(const TensorType& type, const Placement& from, const Placement& to,
                               const Mesh& mesh) {
  View view{{type.dtype, {}}, from, to};
  int64_t elements = type.num_elements();
  for (int t = 0; t < static_cast<int>(type.dims.size()); ++t) {
    if (!CutsEvenly(type.dims[t], from.layout, SplittersOf(from.layout, t), mesh))
      return std::nullopt;
  }
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const Sbp &before = from.layout[axis], &after = to.layout[axis];
    if (before != after && !(before.is_partial() && after.is_broadcast())) return std::nullopt;
    if (!before.is_split()) continue;
    view.from.layout[axis] = view.to.layout[axis] = Sbp::S(static_cast<int>(view.type.dims.size()));
    view.type.dims.push_back({mesh.axes()[axis].name, mesh.size(axis), 1});
    elements /= mesh.size(axis);
  }
  view.type.dims.push_back({"row", elements, 1});
  return view;
}

// Returns the number of steps that merge partials.
int NumMerges(const BoxingSteps& steps) {
  return static_cast<int>(std::count_if(steps.begin(), steps.end(), [](const BoxingStep& step) {
    for (size_t axis = 0; axis < step.from.layout.size(); ++axis) {
      if (IsMerged(step.from.layout[axis], step.to.layout[axis])) return true;
    }
    return false;
  }));
}

// Returns whether the two places of a step have different hosts.
bool LeavesHosts(const BoxingStep& step, const HostCut& cut) {
  return cut.places.RankAt(step.from.place, 0).value() / cut.devices_per_host !=
         cut.places.RankAt(step.to.place, 0).value() / cut.devices_per_host;
}

// Returns the elements that steps over cut meshes send from host to host.
int64_t ElementsBetweenHosts(const TensorType& type, const BoxingSteps& steps, const HostCut& cut) {
  std::vector<bool> hosts = cut.within_host;
  hosts.flip();
  int64_t between = 0;
  for (const BoxingStep& step : steps) {
    const Mesh& mesh = cut.places.mesh(step.from.place);
    between += ElementsSentAmong(type, {step}, mesh, std::vector<bool>(hosts.size()));
    if (!LeavesHosts(step, cut)) between -= ElementsSentAmong(type, {step}, mesh, hosts);
  }
  return between;
}

// Returns the step with its layouts over the cut mesh. The two parts of an axis split a dimension
// evenly there, whatever the offsets of the axis are.
BoxingStep OverCut(const BoxingStep& step, const HostCut& cut) {
  BoxingStep over = step;
  for (Placement* placement : {&over.from, &over.to}) {
    for (size_t axis = 0; axis < cut.axes.size(); ++axis) {
      if (cut.axes[axis].size() > 1) placement->layout[axis].offsets.clear();
    }
    placement->layout = OverCut(placement->layout, cut, placement->place);
  }
  over.flat_axes.clear();
  for (int axis : step.flat_axes)
    over.flat_axes.insert(over.flat_axes.end(), cut.axes[axis].begin(), cut.axes[axis].end());
  return over;
}

// Plans the steps of one view. View and cut outlive the planner.
class LevelsPlanner {
 public:
  LevelsPlanner(const View& view, const HostCut& cut)
      : view_(view),
        cut_(cut),
        mesh_(cut.places.mesh(view.from.place)),
        planner_(view.type, mesh_),
        one_level_(planner_.Plan(view.from, view.to)) {}

  // Returns the best steps, or none if two levels save less than `saved_bytes_min` between hosts.
  // `merges`: the steps that merge partials in the plan of the tensor on one level.
  BoxingSteps Plan(int64_t saved_bytes_min, int merges) const {
    BoxingSteps best;
    std::optional<Price> best_price;
    for (int t : FreeDims()) {
      for (Copies copies : {Copies::kStay, Copies::kShare}) {
        BoxingSteps steps =
            view_.from.place == view_.to.place ? InTurns(t, copies) : OnceForEachHost(t, copies);
        if (!IsValid(steps) || !KeepsBits(steps, merges)) continue;
        const Price price = PriceOf(steps);
        if (best_price.has_value() && *best_price <= price) continue;
        best_price = price;
        best = std::move(steps);
      }
    }
    if (!best_price.has_value()) return {};
    const int64_t saved = std::get<0>(PriceOf(one_level_)) - std::get<0>(*best_price);
    return saved > 0 && saved * SizeOf(view_.type.dtype) >= saved_bytes_min ? best : BoxingSteps();
  }

 private:
  // kStay: each of the equal copies on a host crosses alone. kShare: each copy takes a share
  // across.
  enum class Copies : uint8_t { kStay, kShare };
  // Elements between hosts, elements in all, steps, elements that the busiest ranks send.
  using Price = std::tuple<int64_t, int64_t, size_t, int64_t>;

  Price PriceOf(const BoxingSteps& steps) const {
    return {ElementsBetweenHosts(view_.type, steps, cut_), ElementsSent(view_.type, steps, mesh_),
            steps.size(), BusiestElements(view_.type, steps, mesh_)};
  }

  // Returns whether sums have the bits of those on one level, which come out of `merges` steps.
  bool KeepsBits(const BoxingSteps& steps, int merges) const {
    int64_t within = 1, between = 1;
    bool are_neighbours = true;  // in the sum, the ranks of one host
    Combiner combiner = Combiner::kSum;
    for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
      if (!IsMerged(view_.from.layout[axis], view_.to.layout[axis])) continue;
      if (!cut_.within_host[axis] && mesh_.size(axis) > 1 && within > 1) are_neighbours = false;
      (cut_.within_host[axis] ? within : between) *= mesh_.size(axis);
      combiner = view_.from.layout[axis].combiner;
    }
    if (merges == 0 || combiner == Combiner::kMax || !IsReal(view_.type.dtype)) return true;
    if (merges > 1) return false;
    if (within == 1 || between == 1) return NumMerges(steps) == 1;
    return view_.type.dtype == DType::kF32 && are_neighbours && (within & (within - 1)) == 0 &&
           NumMerges(steps) == 2;
  }

  static bool IsValid(const BoxingSteps& steps) {
    return std::none_of(steps.begin(), steps.end(), [](const BoxingStep& step) {
      return MixesCombiners(step.from.layout) || MixesCombiners(step.to.layout);
    });
  }

  // Returns the dimensions that no axis splits before or after; all, if there is none.
  std::vector<int> FreeDims() const {
    std::vector<int> free, all;
    for (int t = 0; t < static_cast<int>(view_.type.dims.size()); ++t) {
      all.push_back(t);
      if (SplittersOf(view_.from.layout, t).empty() && SplittersOf(view_.to.layout, t).empty())
        free.push_back(t);
    }
    return free.empty() ? all : free;
  }

  // Returns an axis inside hosts while others move between hosts: what is merged, is merged before,
  // along tensor axis t if nothing else is asked for; what is gathered, is gathered after.
  Sbp Meanwhile(const Sbp& before, const Sbp& after, int t, Copies copies) const {
    if (after.is_partial()) return before;
    if (before.is_split()) return before;
    if (after.is_split()) return after;
    return before.is_partial() || copies == Copies::kShare ? Sbp::S(t) : before;
  }

  // Within hosts, between hosts, within hosts.
  BoxingSteps InTurns(int t, Copies copies) const {
    Placement first = view_.from, second = view_.to;
    for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
      if (!cut_.within_host[axis] || mesh_.size(axis) == 1) continue;
      first.layout[axis] = second.layout[axis] =
          Meanwhile(view_.from.layout[axis], view_.to.layout[axis], t, copies);
    }
    if (MixesCombiners(first.layout) || MixesCombiners(second.layout)) return one_level_;
    return Chain(Chain(planner_.Direct(view_.from, first), planner_.Plan(first, second)),
                 planner_.Direct(second, view_.to));
  }

  // To the other place, where each host gets every element once, and then within hosts.
  BoxingSteps OnceForEachHost(int t, Copies copies) const {
    Placement arrived = view_.to;
    for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
      const Sbp& before = view_.from.layout[axis];
      if (!cut_.within_host[axis] || mesh_.size(axis) == 1 || !arrived.layout[axis].is_broadcast())
        continue;
      if (before.is_split()) {
        arrived.layout[axis] = before;
      } else if (before.is_partial() || copies == Copies::kShare) {
        arrived.layout[axis] = Sbp::S(t);
      }
    }
    return Chain(planner_.Plan(view_.from, arrived), planner_.Direct(arrived, view_.to));
  }

  const View& view_;
  const HostCut& cut_;
  const Mesh& mesh_;
  const BoxingPlanner planner_;
  const BoxingSteps one_level_;
};

// Returns whether an axis of several devices becomes partial in the step.
bool MakesPartials(const BoxingStep& step, const Places& places) {
  const Mesh &before = places.mesh(step.from.place), &after = places.mesh(step.to.place);
  const bool one_mesh = before == after;
  for (int axis = 0; axis < after.num_axes(); ++axis) {
    if (after.size(axis) > 1 && step.to.layout[axis].is_partial() &&
        !(one_mesh && step.from.layout[axis].is_partial()))
      return true;
  }
  return false;
}

// Returns the elements that a step between unequal meshes sends from host to host: what each
// receiver asks for, less the parts that devices of its host hold.
int64_t ElementsLackedOnHosts(const TensorType& type, const BoxingStep& step,
                              const Places& places) {
  const auto shard_of = [&](const Placement& placement, RankId rank) {
    return ShardRect(type, placement.layout, places.mesh(placement.place), places.CoordsOf(rank));
  };
  std::map<int64_t, std::vector<Rect>> parts_on;  // by host; two parts have no element in common
  for (const RankId rank : places.ranks(step.from.place)) {
    std::vector<Rect>& parts = parts_on[places.HostOf(rank)];
    Rect part = shard_of(step.from, rank);
    if (std::find(parts.begin(), parts.end(), part) == parts.end())
      parts.push_back(std::move(part));
  }
  int64_t elements = 0;
  for (const RankId receiver : places.ranks(step.to.place)) {
    const Rect wanted = shard_of(step.to, receiver);
    elements += wanted.volume();
    for (const Rect& part : parts_on[places.HostOf(receiver)])
      elements -= Intersect(part, wanted).volume();
  }
  return elements;
}

// Returns the elements that a step over one mesh, which makes no partials, sends from host to host:
// what each receiver gets from all its sources, less what sources on its host give.
int64_t ElementsOfOtherHosts(const TensorType& type, const BoxingStep& step, const Places& places) {
  const Mesh& mesh = places.mesh(step.to.place);
  std::map<int64_t, std::vector<Coords>> senders_on;  // by host
  for (const RankId rank : places.ranks(step.from.place))
    senders_on[places.HostOf(rank)].push_back(places.CoordsOf(rank));
  int64_t elements = 0;
  for (const RankId receiver : places.ranks(step.to.place)) {
    const Coords coords = places.CoordsOf(receiver);
    const ExchangeView view(type, step, mesh, coords);
    const Rect wanted = view.NewRect(coords);
    int64_t sources = 1;  // of an element
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (view.source_rule(axis) == SourceRule::kAll) sources *= mesh.size(axis);
    }
    elements += sources * wanted.volume();
    for (const Coords& sender : senders_on[places.HostOf(receiver)]) {
      if (view.MayServe(sender, coords))
        elements -= Intersect(view.OldRect(sender), wanted).volume();
    }
  }
  return elements;
}

// Returns the elements that a step sends from host to host. A step that makes no partials takes a
// look at each receiver and the devices of its host.
int64_t ElementsBetweenHosts(const TensorType& type, const BoxingStep& step, const Places& places) {
  if (JoinsMeshes(step, places)) return ElementsLackedOnHosts(type, step, places);
  if (!MakesPartials(step, places)) return ElementsOfOtherHosts(type, step, places);
  if (TotalBytes(type, {step}, places) == 0) return 0;
  int64_t elements = 0;
  const RankView ranks(type, step, places, places.RankAt(step.to.place, 0));
  ExchangeView::Leaves leaves;
  for (const RankId receiver : places.ranks(step.to.place)) {
    ranks.view().ForEachCell(ranks.ReceiverAt(receiver), &leaves, [&](const Cell& cell) {
      for (const Coords& source : ranks.SourcesOf(receiver, cell)) {
        if (places.HostOf(ranks.SenderOf(source)) != places.HostOf(receiver))
          elements += cell.rect.volume();
      }
    });
  }
  return elements;
}

// Returns whether the layout leaves each device of the place the same shard over the cut mesh.
bool KeepsShards(const TensorType& type, const Placement& placement, const Layout& over_cut,
                 const Places& places, const HostCut& cut) {
  const Mesh &mesh = places.mesh(placement.place), &cut_mesh = cut.places.mesh(placement.place);
  for (size_t axis = 0; axis < cut.axes.size(); ++axis) {
    if (cut.axes[axis].size() > 1 && !placement.layout[axis].offsets.empty()) return false;
  }
  for (int64_t device = 0; device < mesh.num_ranks(); ++device) {
    if (ShardRect(type, placement.layout, mesh, mesh.CoordsOf(device)) !=
        ShardRect(type, over_cut, cut_mesh, cut_mesh.CoordsOf(device)))
      return false;
  }
  return true;
}

// Plans moves to a place that is cut into blocks, among places of unequal meshes. All arguments
// outlive the planner.
class BlocksPlanner {
 public:
  BlocksPlanner(const TensorType& type, const Placement& from, const Placement& to,
                const Places& places, const HostCut& cut)
      : type_(type), from_(from), to_(to), places_(places), cut_(cut) {}

  // Returns the best steps over the cut meshes, or none if no steps save `saved_bytes_min` between
  // hosts against `one_level`, which are over the meshes of the places.
  BoxingSteps Plan(const BoxingSteps& one_level, int64_t saved_bytes_min) const {
    Placement from = from_, to{OverCut(to_.layout, cut_, to_.place), to_.place};
    if (!AsksForCopies(to)) return {};
    const bool is_cut_twice = places_.mesh(from_.place) == places_.mesh(to_.place);
    if (is_cut_twice && (HasPartials(from_.layout) || HasPartials(to_.layout))) return {};
    if (!KeepsShards(type_, to_, to.layout, places_, cut_)) return {};
    if (is_cut_twice) {
      from.layout = OverCut(from_.layout, cut_, from_.place);
      if (!KeepsShards(type_, from_, from.layout, places_, cut_)) return {};
    }
    BoxingSteps best;
    Price least{BytesOfMoves(one_level, places_) - std::max<int64_t>(saved_bytes_min, 1) + 1, 0, 0};
    for (int t = 0; t < static_cast<int>(type_.dims.size()); ++t) {
      BoxingSteps steps = OnceForEachBlock(from, to, t);
      if (steps.empty()) continue;
      const Price price{BytesOfMoves(steps, cut_.places), TotalBytes(type_, steps, cut_.places),
                        steps.size()};
      if (price >= least) continue;
      least = price;
      best = std::move(steps);
    }
    return best;
  }

 private:
  using Price = std::tuple<int64_t, int64_t, size_t>;  // bytes of moves, bytes, steps

  static bool HasPartials(const Layout& layout) {
    return std::any_of(layout.begin(), layout.end(),
                       [](const Sbp& sbp) { return sbp.is_partial(); });
  }

  // Returns whether the devices of a block ask for copies along the axis of the cut mesh.
  bool IsShared(const Placement& to, int axis) const {
    return cut_.within_host[axis] && cut_.places.mesh(to.place).size(axis) > 1 &&
           !to.layout[axis].is_split();
  }
  bool AsksForCopies(const Placement& to) const {
    for (int axis = 0; axis < static_cast<int>(to.layout.size()); ++axis) {
      if (IsShared(to, axis)) return true;
    }
    return false;
  }

  // Returns the bytes that moves to the other place send from host to host. No other steps make a
  // difference: the merges before the move depend on `from` alone, so all plans have the same, and
  // what follows the move makes partials, which sends nothing, or stays within blocks.
  int64_t BytesOfMoves(const BoxingSteps& steps, const Places& places) const {
    BoxingSteps moves;
    for (const BoxingStep& step : steps) {
      if (step.from.place != step.to.place) moves.push_back(step);
    }
    return BytesBetweenHosts(type_, moves, places);
  }

  // To the other place, where the devices of a block share what they all ask for along tensor axis
  // t, and then within blocks. None: PlanBoxing refuses the layout in between.
  BoxingSteps OnceForEachBlock(const Placement& from, const Placement& to, int t) const {
    Placement arrived = to;
    for (int axis = 0; axis < static_cast<int>(to.layout.size()); ++axis) {
      if (IsShared(to, axis)) arrived.layout[axis] = Sbp::S(t);
    }
    const absl::StatusOr<BoxingSteps> move = PlanBoxing(type_, from, arrived, cut_.places),
                                      spread = PlanBoxing(type_, arrived, to, cut_.places);
    return move.ok() && spread.ok() ? Chain(*move, *spread) : BoxingSteps();
  }

  const TensorType& type_;
  const Placement &from_, &to_;
  const Places& places_;
  const HostCut& cut_;
};

}  // namespace

absl::StatusOr<Boxing> PlanBoxingOverHosts(const TensorType& type, const Placement& from,
                                           const Placement& to, const Places& places,
                                           int64_t saved_bytes_min) {
  Boxing boxing{type, places, {}};
  WEIR_ASSIGN_OR_RETURN(boxing.steps, PlanBoxing(type, from, to, places));
  const HostCut* const cut = places.host_cut(to.place);
  if (cut == nullptr) return boxing;
  if (from.place != to.place && !places.has_equal_meshes()) {
    if (type.dims.empty()) return boxing;  // blocks cannot share a scalar
    BoxingSteps steps =
        BlocksPlanner(type, from, to, places, *cut).Plan(boxing.steps, saved_bytes_min);
    if (steps.empty()) return boxing;
    return Boxing{type, cut->places, std::move(steps)};
  }
  if (!cut->follows_hosts || ElementsSent(type, boxing.steps, places.mesh(from.place)) == 0)
    return boxing;
  const Mesh& mesh = cut->places.mesh(from.place);
  const Placement cut_from{OverCut(from.layout, *cut, from.place), from.place};
  const Placement cut_to{OverCut(to.layout, *cut, to.place), to.place};
  std::optional<View> view = ViewOfRows(type, cut_from, cut_to, mesh);
  if (!view.has_value()) view = ViewOfDims(type, cut_from, cut_to, mesh);
  if (!view.has_value()) return boxing;
  BoxingSteps steps = LevelsPlanner(*view, *cut).Plan(saved_bytes_min, NumMerges(boxing.steps));
  if (steps.empty()) return boxing;
  return Boxing{std::move(view->type), cut->places, std::move(steps)};
}

int64_t BytesBetweenHosts(const TensorType& type, const std::vector<BoxingStep>& steps,
                          const Places& places, const HostCut& cut) {
  if (steps.empty()) return 0;
  BoxingSteps over = steps;
  if (places.mesh(0) != cut.places.mesh(0)) {
    for (BoxingStep& step : over) step = OverCut(step, cut);
  }
  return ElementsBetweenHosts(type, over, cut) * SizeOf(type.dtype);
}

int64_t BytesBetweenHosts(const TensorType& type, const std::vector<BoxingStep>& steps,
                          const Places& places) {
  int64_t elements = 0;
  for (const BoxingStep& step : steps) elements += ElementsBetweenHosts(type, step, places);
  return elements * SizeOf(type.dtype);
}

std::optional<bool> StaysInHosts(const BoxingStep& step, const Places& places, const HostCut* cut) {
  if (cut == nullptr || places.mesh(step.from.place) != cut->places.mesh(step.from.place))
    return std::nullopt;
  if (step.from.place != step.to.place && !places.has_equal_meshes()) return std::nullopt;
  if (LeavesHosts(step, *cut)) return false;
  for (size_t axis = 0; axis < step.from.layout.size(); ++axis) {
    if (!cut->within_host[axis] && step.from.layout[axis] != step.to.layout[axis]) return false;
  }
  return true;
}

}  // namespace weir::sbp
