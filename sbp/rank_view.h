// A RankView shows one step to the ranks of the two places: an ExchangeView, and the coordinates
// that ranks have in it. Only sbp includes this header.
//
// Between places of one mesh, and within a place, the coordinates are those in that mesh. Between
// places of unequal meshes the view is over a *joint* mesh: first the axes of the source's mesh,
// then those of the destination's. The layout before the step is B on the axes of the destination,
// the layout after it is B on those of the source, and a device of one place stands for all
// devices of the joint mesh that have its coordinates. The rules of the view then say what they say
// on one mesh: an element comes from the holder of the part that has it. Where several devices of
// the source hold the part, the receivers take them in turn: receiver i takes copy i modulo the
// number of copies. If some of these devices are on the receiver's host, they alone count.
//
//   source dp=2, layout [dp: S(0)]    destination dp=1,tp=3, layout [dp: B, tp: S(0)], 6 rows
//     joint mesh dp=2 | dp=1,tp=3       before [S(0) | B, B], after [B | B, S(0)]
//     receiver tp=1 wants rows 2 and 3: row 2 from dp=0, row 3 from dp=1
//
// Thread rule: values; the places outlive a view.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sbp/exchange_view.h"
#include "sbp/places.h"

namespace weir::sbp {

class RankView {
 public:
  // The view is that of `rank`, and for a flat step that of all ranks of its group. The rank
  // belongs to a place of the step.
  RankView(const TensorType& type, const BoxingStep& step, const Places& places, RankId rank);

  const ExchangeView& view() const { return view_; }

  // Returns the coordinates of a receiver, a rank of the destination.
  Coords ReceiverAt(RankId receiver) const;
  // Returns the coordinates with which the rules of the view say what the receiver takes from
  // `sender`, a rank of the source. Between unequal meshes the coordinates depend on the sender,
  // because the receiver may take the parts of the tensor from different copies.
  Coords ReceiverFor(RankId receiver, RankId sender) const;
  // Returns the coordinates that a sender has for this receiver.
  Coords SenderAt(RankId sender, const Coords& receiver) const;
  // Returns the coordinates of all sources of a receiver's cell, in the order of merging.
  std::vector<Coords> SourcesOf(RankId receiver, const Cell& cell) const;
  // Returns the rank of a source with these coordinates.
  RankId SenderOf(const Coords& source) const;

  // Returns the elements that `sender` sends to others. Between unequal meshes the number is a sum
  // over the devices of the destination.
  int64_t ElementsSent(RankId sender) const;

 private:
  bool is_joint() const { return joint_ != nullptr; }
  // Returns the number of the part that the source with these coordinates holds.
  int64_t PartOf(const Coords& source) const;
  // Returns the coordinates of the holder from which a receiver takes the part that the source with
  // these coordinates holds.
  Coords HolderFor(RankId receiver, const Coords& source) const;

  const Places* places_;
  int64_t from_place_, to_place_;
  std::shared_ptr<const Mesh> joint_;  // null within a place and between places of one mesh
  ExchangeView view_;
  // Between unequal meshes: the ranks that hold each part before the step, ascending. Those of one
  // host are neighbours.
  std::vector<std::vector<RankId>> holders_;
};

// Returns whether the step goes between places of unequal meshes.
inline bool JoinsMeshes(const BoxingStep& step, const Places& places) {
  return !(places.mesh(step.from.place) == places.mesh(step.to.place));
}

}  // namespace weir::sbp
