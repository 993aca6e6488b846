#include "sbp/exchange_view.h"

#include <algorithm>

namespace weir::sbp {
namespace {

Range Overlap(const Range& a, const Range& b) {
  int64_t begin = std::max(a.begin, b.begin);
  return Range{begin, std::max(begin, std::min(a.end, b.end))};
}

bool Contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

ExchangeView::ExchangeView(const TensorType& type, const BoxingStep& step, const Mesh& mesh,
                           const Coords& coords)
    : type_(type),
      from_(step.from.layout),
      to_(step.to.layout),
      in_view_(mesh.num_axes(), true),
      mesh_(&mesh) {
  if (step.flat) {
    Layout outside = from_;
    for (int axis : step.flat_axes) outside[axis] = Sbp::B();
    int64_t elements = ShardRect(type, outside, mesh, coords).volume();
    type_.dims = {TensorDim{"row", elements, 1}};
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (Contains(step.flat_axes, axis)) continue;
      from_[axis] = to_[axis] = Sbp::B();
      in_view_[axis] = false;
    }
  }
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const Sbp &before = from_[axis], &after = to_[axis];
    SourceRule rule = SourceRule::kSame;
    if (before.is_partial() && !after.is_partial()) {
      rule = SourceRule::kAll;
      merge_combiner_ = before.combiner;
    } else if (before.is_split() && !after.is_partial()) {
      rule = SourceRule::kHolder;
    }
    if (after.is_partial()) neutral_combiner_ = after.combiner;
    rules_.push_back(rule);
  }
}

// Appends the non-empty leaves under `range` in ascending order.
void ExchangeView::CollectLeaves(int tensor_axis, int mesh_axis, const Range& range,
                                 const Range& window, Leaf* leaf, std::vector<Leaf>* leaves) const {
  const int num_axes = static_cast<int>(from_.size());
  while (mesh_axis < num_axes &&
         !(from_[mesh_axis].is_split() && from_[mesh_axis].axis == tensor_axis))
    ++mesh_axis;
  const Range seen = Overlap(range, window);
  if (seen.length() == 0) return;
  if (mesh_axis == num_axes) {
    leaves->push_back(Leaf{seen, leaf->holder});
    return;
  }
  const int64_t parts = mesh_->size(mesh_axis);
  for (int64_t i = 0; i < parts; ++i) {
    leaf->holder.emplace_back(mesh_axis, i);
    Range part = PartOf(range, from_[mesh_axis], type_.dims[tensor_axis].unit, parts, i);
    CollectLeaves(tensor_axis, mesh_axis + 1, part, window, leaf, leaves);
    leaf->holder.pop_back();
  }
}

bool ExchangeView::MayServe(const Coords& sender, const Coords& receiver) const {
  for (size_t axis = 0; axis < rules_.size(); ++axis) {
    if (rules_[axis] != SourceRule::kSame) continue;
    if (sender[axis] != receiver[axis]) return false;
    if (BecomesPartial(static_cast<int>(axis)) && receiver[axis] != 0) return false;
  }
  return true;
}

bool ExchangeView::IsSource(const Coords& sender, const Cell& cell) const {
  if (!cell.held) return false;
  for (size_t axis = 0; axis < rules_.size(); ++axis) {
    if (rules_[axis] != SourceRule::kAll && sender[axis] != cell.source[axis]) return false;
  }
  return true;
}

std::vector<Coords> ExchangeView::SourcesOf(const Cell& cell) const {
  std::vector<Coords> sources;
  if (!cell.held) return sources;
  std::vector<int> merged;
  for (int axis = 0; axis < mesh_->num_axes(); ++axis) {
    if (rules_[axis] == SourceRule::kAll) merged.push_back(axis);
  }
  Coords source = cell.source;
  ForEachCoords(*mesh_, merged, &source, [&] { sources.push_back(source); });
  return sources;
}

// One scratch cell runs over the product of the leaves of all tensor axes. Nothing is allocated per
// cell, because a large group has the square of its size in cells.
void ExchangeView::ForEachCell(const Coords& receiver, Leaves* known,
                               absl::FunctionRef<void(const Cell&)> visit) const {
  Cell cell;
  cell.rect = NewRect(receiver);
  if (cell.rect.volume() == 0) return;
  cell.source = receiver;
  bool first_holder = true;
  for (size_t axis = 0; axis < rules_.size(); ++axis) {
    if (rules_[axis] == SourceRule::kAll) cell.source[axis] = 0;
    if (BecomesPartial(static_cast<int>(axis)) && receiver[axis] != 0) first_holder = false;
  }
  const size_t num_dims = type_.dims.size();
  std::vector<Leaves::OfAxis>& axes = known->axes_;
  axes.resize(num_dims);
  for (size_t t = 0; t < num_dims; ++t) {
    const Range window{cell.rect.begin[t], cell.rect.end[t]};
    if (axes[t].window == window) continue;
    axes[t] = {window, {}};
    Leaf path;
    CollectLeaves(static_cast<int>(t), 0, Range{0, type_.dims[t].size}, window, &path,
                  &axes[t].leaves);
  }
  std::vector<size_t> at(num_dims, 0);
  while (true) {
    cell.held = first_holder;
    for (size_t t = 0; t < num_dims; ++t) {
      const Leaf& leaf = axes[t].leaves[at[t]];
      cell.rect.begin[t] = leaf.range.begin;
      cell.rect.end[t] = leaf.range.end;
      for (const auto& [axis, coordinate] : leaf.holder) {
        if (rules_[axis] == SourceRule::kHolder) cell.source[axis] = coordinate;
        // A split that becomes partial: each holder keeps its own part.
        if (rules_[axis] == SourceRule::kSame && coordinate != receiver[axis]) cell.held = false;
      }
    }
    visit(cell);
    int t = static_cast<int>(num_dims) - 1;
    for (; t >= 0; --t) {
      if (++at[t] < axes[t].leaves.size()) break;
      at[t] = 0;
    }
    if (t < 0) return;
  }
}

// Returns the number of elements that one sender gives. The sender's old shard meets the new shards
// of all receivers whose coordinates agree with its own on kSame axes and run freely on the others.
// Every mesh axis narrows at most one tensor axis of the new shard. The sum of the volumes is
// therefore the product over tensor axes of sums of one-dimensional overlaps, times the copies
// asked for by free axes that do not narrow anything.
int64_t ExchangeView::ElementsSent(const Coords& sender, bool same_place) const {
  for (int axis = 0; axis < mesh_->num_axes(); ++axis) {
    if (BecomesPartial(axis) && sender[axis] != 0) return 0;
  }
  int64_t sent = CopiesAskedFor(), kept = 1;
  for (int t = 0; t < static_cast<int>(type_.dims.size()); ++t) {
    sent *= LengthOf(Measure::kSent, t, sender);
    kept *= LengthOf(Measure::kKept, t, sender);
  }
  return same_place ? sent - kept : sent;
}

int64_t ExchangeView::TotalElementsSent(bool same_place) const {
  int64_t sent = CopiesAskedFor() * SumOverRanks(Measure::kSent);
  return same_place ? sent - SumOverRanks(Measure::kKept) : sent;
}

int64_t ExchangeView::TotalElementsSentAmong(const std::vector<bool>& agreed) const {
  ExchangeView among = *this;
  among.agreed_ = agreed;
  return among.CopiesAskedFor() * among.SumOverRanks(Measure::kSent);
}

// The sum over ranks of a product over tensor axes is again a product of sums, one for each set of
// tensor axes that share mesh axes, so no loop over the ranks is needed.
int64_t ExchangeView::SumOverRanks(Measure measure) const {
  const int num_dims = static_cast<int>(type_.dims.size()), num_axes = mesh_->num_axes();
  int64_t sum = 1;
  std::vector<bool> mesh_done(num_axes, false), dim_done(num_dims, false);
  for (int start = 0; start < num_dims; ++start) {
    if (dim_done[start]) continue;
    dim_done[start] = true;
    std::vector<int> dims = {start}, axes;
    for (size_t i = 0; i < dims.size(); ++i) {
      for (int axis = 0; axis < num_axes; ++axis) {
        if (mesh_done[axis] || !DependsOn(measure, dims[i], axis)) continue;
        mesh_done[axis] = true;
        axes.push_back(axis);
        for (int t = 0; t < num_dims; ++t) {
          if (dim_done[t] || !DependsOn(measure, t, axis)) continue;
          dim_done[t] = true;
          dims.push_back(t);
        }
      }
    }
    int64_t part_sum = 0;
    Coords coords(num_axes, 0);
    ForEachCoords(*mesh_, axes, &coords, [&] {
      int64_t product = 1;
      for (int t : dims) product *= LengthOf(measure, t, coords);
      part_sum += product;
    });
    sum *= part_sum;
  }
  for (int axis = 0; axis < num_axes; ++axis) {
    if (!mesh_done[axis] && in_view_[axis] && !BecomesPartial(axis)) sum *= mesh_->size(axis);
  }
  return sum;
}

bool ExchangeView::DependsOn(Measure measure, int tensor_axis, int mesh_axis) const {
  const Sbp &before = from_[mesh_axis], &after = to_[mesh_axis];
  if (before.is_split() && before.axis == tensor_axis) return true;
  if (!after.is_split() || after.axis != tensor_axis) return false;
  return measure == Measure::kKept || Agrees(mesh_axis);
}

int64_t ExchangeView::CopiesAskedFor() const {
  int64_t copies = 1;
  for (int axis = 0; axis < mesh_->num_axes(); ++axis) {
    if (!Agrees(axis) && to_[axis].is_broadcast()) copies *= mesh_->size(axis);
  }
  return copies;
}

Range ExchangeView::RangeIn(const Layout& layout, int tensor_axis, const Coords& coords) const {
  const TensorDim& dim = type_.dims[tensor_axis];
  Range range{0, dim.size};
  for (int axis = 0; axis < mesh_->num_axes(); ++axis) {
    if (!layout[axis].is_split() || layout[axis].axis != tensor_axis) continue;
    range = PartOf(range, layout[axis], dim.unit, mesh_->size(axis), coords[axis]);
  }
  return range;
}

int64_t ExchangeView::LengthOf(Measure measure, int tensor_axis, const Coords& coords) const {
  const Range old = RangeIn(from_, tensor_axis, coords);
  if (measure == Measure::kKept) return Overlap(old, RangeIn(to_, tensor_axis, coords)).length();
  int agreeing_end = 0;
  for (int axis = 0; axis < static_cast<int>(to_.size()); ++axis) {
    if (IsSplitAfter(axis, tensor_axis) && Agrees(axis)) agreeing_end = axis + 1;
  }
  return OverlapSum(coords, tensor_axis, 0, agreeing_end, Range{0, type_.dims[tensor_axis].size},
                    old);
}

// The parts of a split lie side by side and cover what is split. Receivers that run freely over all
// inner axes therefore ask together for the whole part, and of the outer parts, only those count
// that meet `old`.
int64_t ExchangeView::OverlapSum(const Coords& sender, int tensor_axis, int mesh_axis,
                                 int agreeing_end, const Range& part, const Range& old) const {
  const int64_t overlap = Overlap(part, old).length();
  if (overlap == 0) return 0;
  while (mesh_axis < agreeing_end && !IsSplitAfter(mesh_axis, tensor_axis)) ++mesh_axis;
  if (mesh_axis >= agreeing_end) return overlap;
  const int64_t unit = type_.dims[tensor_axis].unit, parts = mesh_->size(mesh_axis);
  const auto part_of = [&](int64_t i) { return PartOf(part, to_[mesh_axis], unit, parts, i); };
  const auto sum_of = [&](const Range& inner) {
    return OverlapSum(sender, tensor_axis, mesh_axis + 1, agreeing_end, inner, old);
  };
  if (Agrees(mesh_axis)) return sum_of(part_of(sender[mesh_axis]));
  int64_t first = 0;
  for (int64_t end = parts; first < end;) {
    const int64_t middle = first + (end - first) / 2;
    if (part_of(middle).end > old.begin) {
      end = middle;
    } else {
      first = middle + 1;
    }
  }
  int64_t sum = 0;
  for (int64_t i = first; i < parts; ++i) {
    const Range inner = part_of(i);
    if (inner.begin >= old.end) break;
    sum += sum_of(inner);
  }
  return sum;
}

}  // namespace weir::sbp
