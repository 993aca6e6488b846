// An ExchangeView shows one step as the ranks of one group see it: a tensor (the logical one, or
// one flat row), a layout before, a layout after, and a source rule for each mesh axis.
// BuildExchange and the closed form of the bytes both use this view; only sbp includes this header.
// Thread rule: values; the mesh outlives the view.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "sbp/boxing.h"

namespace weir::sbp {

// The source's coordinate on a mesh axis.
enum class SourceRule : uint8_t {
  kSame,    // the receiver's own
  kHolder,  // that of the rank whose part, by a split before the step, holds the element
  kAll,     // every coordinate, in order: the axis was partial and is merged
};

// Calls visit() with `coords` running over all values on `axes`, the last axis fastest. The
// coordinates on `axes` are 0 before and after the call.
template <typename Visit>
void ForEachCoords(const Mesh& mesh, const std::vector<int>& axes, Coords* coords, Visit visit) {
  while (true) {
    visit();
    int i = static_cast<int>(axes.size()) - 1;
    for (; i >= 0; --i) {
      if (++(*coords)[axes[i]] < mesh.size(axes[i])) break;
      (*coords)[axes[i]] = 0;
    }
    if (i < 0) return;
  }
}

// A Cell is a part of a receiver's new shard that lies in one part of every split before the step.
struct Cell {
  Rect rect;      // in the view's tensor
  Coords source;  // of the source; 0 on kAll axes
  // True if the receiver gets the values. Where an axis becomes partial, all ranks but the first
  // holder get the neutral element instead.
  bool held = true;
};

class ExchangeView {
 private:
  // A Leaf is the part of a window that an innermost part of a tensor axis covers before the step,
  // with the holder of that part.
  struct Leaf {
    Range range;
    absl::InlinedVector<std::pair<int, int64_t>, 2> holder;  // (mesh axis, coordinate)
  };

 public:
  // Leaves are those of every tensor axis, for the new shard of one receiver.
  class Leaves {
   private:
    friend class ExchangeView;
    struct OfAxis {
      Range window;  // of the shard; empty: not found yet
      std::vector<Leaf> leaves;
    };
    std::vector<OfAxis> axes_;
  };

  // The view is that of the rank at `coords`, and for a flat step that of all ranks of its group.
  ExchangeView(const TensorType& type, const BoxingStep& step, const Mesh& mesh,
               const Coords& coords);

  const TensorType& type() const { return type_; }
  SourceRule source_rule(int mesh_axis) const { return rules_[mesh_axis]; }
  Rect OldRect(const Coords& coords) const { return ShardRect(type_, from_, *mesh_, coords); }
  Rect NewRect(const Coords& coords) const { return ShardRect(type_, to_, *mesh_, coords); }
  Combiner merge_combiner() const { return merge_combiner_; }      // of kAll axes
  Combiner neutral_combiner() const { return neutral_combiner_; }  // of cells not held

  // Returns whether any element of `receiver`'s new shard may come from `sender`.
  bool MayServe(const Coords& sender, const Coords& receiver) const;
  // Returns whether `sender` is a source of `cell` of a receiver that `sender` may serve.
  bool IsSource(const Coords& sender, const Cell& cell) const;
  // Returns the coordinates of all sources of `cell`, in the order of merging.
  std::vector<Coords> SourcesOf(const Cell& cell) const;
  // Visits the cells of `receiver`'s new shard in row-major order. An empty shard has no cells.
  void ForEachCell(const Coords& receiver, absl::FunctionRef<void(const Cell&)> visit) const {
    Leaves leaves;
    ForEachCell(receiver, &leaves, visit);
  }
  // The same for one receiver after another, with `leaves` from the receiver before, or new. Along
  // a tensor axis on which the new shards of the two are alike, nothing is looked for again.
  void ForEachCell(const Coords& receiver, Leaves* leaves,
                   absl::FunctionRef<void(const Cell&)> visit) const;

  // Returns the elements that `sender` sends to others, or, across places, to all its receivers.
  int64_t ElementsSent(const Coords& sender, bool same_place) const;
  // Returns the sum of ElementsSent over all senders of the mesh; for a flat view, over those of
  // one group.
  int64_t TotalElementsSent(bool same_place) const;
  // Returns the elements that all senders give to receivers, themselves included, that agree with
  // them on the axes `agreed` (by mesh axis).
  int64_t TotalElementsSentAmong(const std::vector<bool>& agreed) const;

 private:
  // A Measure is a length along one tensor axis; the product over all tensor axes is a volume.
  enum class Measure {
    kSent,  // elements that a sender sends to all its receivers and to itself
    kKept,  // elements that a rank holds both before and after
  };

  void CollectLeaves(int tensor_axis, int mesh_axis, const Range& range, const Range& window,
                     Leaf* leaf, std::vector<Leaf>* leaves) const;
  // Returns the elements of `old` that the receivers of `part` ask of a sender: those whose
  // coordinates on the mesh axes from `mesh_axis` on agree with the sender's where they must. No
  // axis from `agreeing_end` on must.
  int64_t OverlapSum(const Coords& sender, int tensor_axis, int mesh_axis, int agreeing_end,
                     const Range& part, const Range& old) const;
  bool IsSplitAfter(int mesh_axis, int tensor_axis) const {
    return to_[mesh_axis].is_split() && to_[mesh_axis].axis == tensor_axis;
  }
  // Returns whether only receivers that agree with a sender on the axis count.
  bool Agrees(int mesh_axis) const {
    return rules_[mesh_axis] == SourceRule::kSame || (!agreed_.empty() && agreed_[mesh_axis]);
  }
  // Returns the range of a tensor axis that `layout` leaves at `coords`.
  Range RangeIn(const Layout& layout, int tensor_axis, const Coords& coords) const;
  int64_t LengthOf(Measure measure, int tensor_axis, const Coords& coords) const;
  bool DependsOn(Measure measure, int tensor_axis, int mesh_axis) const;
  int64_t SumOverRanks(Measure measure) const;
  // Returns the number of receivers that one sender serves alike: free axes that narrow nothing.
  int64_t CopiesAskedFor() const;
  bool BecomesPartial(int axis) const {
    return from_[axis].is_broadcast() && to_[axis].is_partial();
  }

  TensorType type_;
  Layout from_, to_;
  std::vector<bool> in_view_;  // by mesh axis: false outside the group of a flat step
  const Mesh* mesh_;
  std::vector<SourceRule> rules_;  // by mesh axis
  std::vector<bool> agreed_;       // of TotalElementsSentAmong; otherwise empty
  Combiner merge_combiner_ = Combiner::kSum;
  Combiner neutral_combiner_ = Combiner::kSum;
};

}  // namespace weir::sbp
