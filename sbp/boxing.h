// Boxing changes a tensor from any (layout, device set) to any other. This header plans the change
// and computes its price.
//
// A boxing of one or more tensors is a short list of steps. Each step is an *exchange*: every
// receiving rank fills the regions of its new shard. A region has one source, or, where an axis was
// partial, several sources that are combined in a fixed order. A step moves exactly the elements
// that a rank lacks, so the bytes equal the closed form below. T is the logical bytes of the
// tensor, n is the number of ranks on the axis, and the devices stay the same:
//
//   X->X 0 · B->S 0 · B->P 0 · S->P 0 · S->B (n-1)T · P->S (n-1)T · P->B 2(n-1)T ·
//   S(i)->S(j) T(n-1)/n
//
// The figures are sums over all ranks. They are exact when the parts are even; otherwise the
// offsets decide. P->B goes through a flat split in 2 steps: reduce-scatter, then all-gather.
// Between two ranks P->B is one exchange, which sends as many bytes. Across device sets the
// receivers lack everything, so a boxing costs T times the number of copies that the destination
// asks for.
//
// With several mesh axes one exchange does any mixture of changes of S and B, of new partials (only
// the first holder keeps the value) and of partials merged into splits. PlanBoxing compares a few
// short sequences by TotalBytes and takes the cheapest. Ties go to the shortest sequence, then to
// the sequence whose busiest rank sends least. The sequences are:
//   - the one exchange, if no axis goes P->B, or only one of two ranks;
//   - first the partial axes alone, into splits, then one exchange to the destination;
//   - first everything else, with the P->B axes in splits, then one all-gather;
//   - the flat pair of steps over all P->B axes at once, before or after the rest.
// Across places, partials are first merged into splits on the source's devices (P->S), so that each
// element crosses once per copy asked for. P->P with one combiner crosses as it is, if the meshes
// of the places are equal. Between unequal meshes nothing partial crosses: partials are merged
// before, and made anew behind.
//
// Sources: an element's source agrees with the receiver in every axis where it may. The source is
// the receiver itself if the receiver holds the element, else the holder that differs in fewest
// mesh coordinates. Copies are thus read from as many holders as there are. Devices of unequal
// meshes have no coordinates in common, and read the copies in turn: those on their own host, if
// there are any (rank_view.h). Sums run over the coordinates of the merged axes in row-major order
// on every rank, in pairs (runtime/base/transfer/transfer.h). boxing_over_hosts.h prefers the links
// inside hosts.
//
// The part of one rank is a pure function of (step, rank), so no rank needs another rank's plan.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sbp/layout.h"
#include "sbp/places.h"

namespace weir::sbp {

// A Placement says where a tensor lies: at a place of the job, with a layout over the place's mesh.
struct Placement {
  Layout layout;
  int64_t place = 0;
  friend bool operator==(const Placement&, const Placement&) = default;
};

enum class BoxingMethod : uint8_t {
  kIdentity,       // nothing to do
  kSlice,          // each rank keeps part of what it has (B->S)
  kToPartial,      // zeros where this rank is not the first holder (B->P, S->P)
  kReduceScatter,  // P->S
  kAllGather,      // S->B
  kAllReduce,      // P->B of two ranks
  kAllToAll,       // S->S
  kMove,           // to other devices
  kMixed,          // several axes at once
};
std::string Name(BoxingMethod method);

// A BoxingStep is one exchange. A `flat` step sees each local shard as one row of elements (P->B:
// reduce-scatter and all-gather of flat shards). A group of a flat step is the ranks that are equal
// in all mesh axes but `flat_axes`. The ranks of a group hold one common shard, and nothing leaves
// the group. The layouts of a flat step describe the logical tensor in the other axes, which do not
// change, and the row of the common shard in `flat_axes`. In `flat_axes`, S(0) is the balanced
// split of that row.
struct BoxingStep {
  BoxingMethod method = BoxingMethod::kIdentity;
  Placement from, to;
  bool flat = false;
  std::vector<int> flat_axes;  // for flat steps: mesh axes whose ranks form a group, ascending
  friend bool operator==(const BoxingStep&, const BoxingStep&) = default;
};
// "kind: stage 0 [dp: P(sum)] -> stage 0 [dp: S(0)], flat over dp"
std::string ToText(const BoxingStep& step, const Places& places);

// Returns the steps for one tensor, or none if every rank already holds its destination shard. The
// shards after one step are the shards before the next.
// kInvalidArgument: a layout is invalid for `type`, a place does not exist, or a partial axis would
// change its combiner on one mesh (P(max) -> P(sum)).
absl::StatusOr<std::vector<BoxingStep>> PlanBoxing(const TensorType& type, const Placement& from,
                                                   const Placement& to, const Places& places);

// Returns the bytes that leave `rank` for other ranks in this step, and their sum over all ranks
// and steps. Both are closed forms of the layouts alone.
int64_t BytesSent(const TensorType& type, const BoxingStep& step, const Places& places,
                  RankId rank);
int64_t TotalBytes(const TensorType& type, const std::vector<BoxingStep>& steps,
                   const Places& places);

// Returns the local shard of `rank` before and after the step, as the kernels see it (flat steps:
// rank-1 shards). The shape is [0] if `rank` is not in that device set.
TensorSlice StepInput(const TensorType& type, const BoxingStep& step, const Places& places,
                      RankId rank);
TensorSlice StepOutput(const TensorType& type, const BoxingStep& step, const Places& places,
                       RankId rank);

// A RegionSource is one source of a region: rank `from` sends `src`, in coordinates of its own
// local shard.
struct RegionSource {
  RankId from;
  Rect src;
};
// A Region is a part of this rank's new shard. `dst` is local to that shard. With one source the
// region is a copy. Several sources are combined in pairs, in the order listed. Without a source
// the region is filled with the combiner's neutral element (0, -inf).
struct Region {
  int tensor = 0;
  Rect dst;
  std::vector<RegionSource> sources;
  Combiner combiner = Combiner::kSum;
};
// A Piece is a part of the elements that this rank sends to one peer, in the order of the peer's
// regions. The regions of a receiver, laid end to end, number its elements, and `position` is the
// number at which the piece begins. Transfers are cut into chunks by position, so the chunks of all
// senders to one receiver line up and can be combined as they come.
struct Piece {
  int tensor = 0;
  Rect src;  // local to this rank's old shard
  int64_t position = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

struct RankExchange {
  std::vector<Region> regions;                 // to fill here; empty if not a receiver
  std::map<RankId, std::vector<Piece>> sends;  // by receiving rank, this rank excluded
  // Elements received from each peer (this rank excluded), in the order of regions.
  std::map<RankId, int64_t> receives;
  // Elements of all regions of each receiving rank that this rank sends to (keys as in `sends`).
  std::map<RankId, int64_t> receiver_elements;
};

// Returns the part of `rank` in step number k of several tensors boxed together (a bundle):
// types[i] with steps[i]. All steps have the same pair of places. Any rank of the job may be
// passed; the result is empty for most. Pairs of ranks agree: a sends to b exactly the elements
// that b expects from a.
RankExchange BuildExchange(const std::vector<TensorType>& types,
                           const std::vector<BoxingStep>& steps, const Places& places, RankId rank);

}  // namespace weir::sbp
