// Boxing: from one (layout, device set) to another, any to any, and its price.
//
// A boxing of one or more tensors is a short list of steps. Each step is an
// *exchange*: every receiving rank fills the regions of its new shard, each from
// one source, or, where an axis was partial, from several in a fixed order,
// combined. A step moves exactly the elements a rank lacks, so the bytes equal the
// closed form below. T = logical bytes of the tensor, n = ranks on the axis, same devices:
//
//   X->X 0 · B->S 0 · B->P 0 · S->P 0 · S->B (n-1)T · P->S (n-1)T · P->B 2(n-1)T · S(i)->S(j)
//   T(n-1)/n
//
// (sum over all ranks; exact when parts are even, else by the offsets). P->B goes
// through a flat split: reduce-scatter, then all-gather, 2 steps; between two ranks in one
// exchange, which sends as much. Across device sets the receivers lack everything: T times the
// copies asked for.
//
// With several mesh axes one exchange does any mixture of changes of S and B, of new
// partials (only the first holder keeps the value) and of partials merged into splits. PlanBoxing
// weighs a few short sequences by TotalBytes and takes the cheapest (then the shortest, then the
// one whose busiest rank sends least):
//   - the one exchange, if no axis goes P->B, or only one of two ranks;
//   - first the partial axes alone, into splits, then one exchange to the destination;
//   - first everything else, with the P->B axes in splits, then one all-gather;
//   - the flat pair of steps over all P->B axes at once, before or after the rest.
// Across stages partials are first merged into splits on the source's devices (P->S), so that
// each element crosses once per copy asked for; P->P with one combiner crosses as it is.
//
// Sources. An element's source agrees with the receiver in every axis where it may: the
// receiver itself if it holds the element, else the holder that differs in fewest mesh
// coordinates. Copies are thus read from as many holders as there are. Sums run over the
// coordinates of the merged axes in row-major order, whoever computes them.
//
// What one rank does is a pure function of (step, rank): no rank needs another's plan.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sbp/layout.h"

namespace weir {

// Which devices: a stage of the job's mesh.
struct Place {
  Layout layout;
  int64_t stage = 0;
  friend bool operator==(const Place&, const Place&) = default;
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

// One exchange. `flat` steps see each local shard as one row of elements (P->B:
// reduce-scatter and all-gather of flat shards). A group of a flat step is the ranks equal
// in all mesh axes but `flat_axes`; they hold one common shard, and nothing leaves the group.
// The layouts of a flat step speak of the logical tensor in the other axes, which do
// not change, and of the row of the common shard in `flat_axes`: S(0) there is the
// balanced split of that row.
struct BoxingStep {
  BoxingMethod method = BoxingMethod::kIdentity;
  Place from, to;
  bool flat = false;
  std::vector<int> flat_axes;  // for flat steps: mesh axes whose ranks form a group, ascending
  friend bool operator==(const BoxingStep&, const BoxingStep&) = default;
};
// "kind: stage 0 [dp: P(sum)] -> stage 0 [dp: S(0)], flat over dp"
std::string ToText(const BoxingStep& step, const Mesh& mesh);

// The steps for one tensor; none if every rank already holds what it is to hold. Steps
// follow on each other: the shards after one are the shards before the next. Layouts are over
// mesh.StageMesh(). kInvalidArgument for a layout invalid for `type`, a stage that is not, and a
// partial axis that would change its combiner (P(max) -> P(sum)).
absl::StatusOr<std::vector<BoxingStep>> PlanBoxing(const TensorType& type, const Place& from,
                                                   const Place& to, const Mesh& mesh);

// Bytes that leave `rank` for other ranks in this step, and summed over all ranks and
// steps: closed forms, from the layouts alone.
int64_t BytesSent(const TensorType& type, const BoxingStep& step, const Mesh& mesh, int64_t rank);
int64_t TotalBytes(const TensorType& type, const std::vector<BoxingStep>& steps, const Mesh& mesh);

// The local shard of `rank` before and after the step, as the kernels see it (flat steps:
// rank-1 shards). Of shape [0] if `rank` is not in that device set.
TensorSlice StepInput(const TensorType& type, const BoxingStep& step, const Mesh& mesh,
                      int64_t rank);
TensorSlice StepOutput(const TensorType& type, const BoxingStep& step, const Mesh& mesh,
                       int64_t rank);

// One source of a region: rank `from` sends `src`, in coordinates of its own local shard.
struct RegionSource {
  int64_t from = 0;
  Rect src;
};
// A part of this rank's new shard. `dst` is local to it. One source: copy. Several: combine
// in the order listed. None: fill with the combiner's neutral element (0, -inf).
struct Region {
  int tensor = 0;
  Rect dst;
  std::vector<RegionSource> sources;
  Combiner combiner = Combiner::kSum;
};
// What this rank sends to one peer, in the order the peer's regions list it. The regions
// of a receiver, laid end to end, number its elements: `position` is where this piece
// begins there. Transfers are cut into chunks by position, so the chunks of all
// senders to one receiver line up and can be combined as they come.
struct Piece {
  int tensor = 0;
  Rect src;  // local to this rank's old shard
  int64_t position = 0;
};

struct RankExchange {
  std::vector<Region> regions;                  // to fill here; empty if not a receiver
  std::map<int64_t, std::vector<Piece>> sends;  // by receiving rank, this rank excluded
  // Elements received from each peer (this rank excluded), in the order of regions.
  std::map<int64_t, int64_t> receives;
  // Elements of all regions of each receiving rank this rank sends to (keys as in `sends`).
  std::map<int64_t, int64_t> receiver_elements;
};

// What `rank` does in step number k of several tensors boxed together (a bundle): types[i]
// with steps[i]. All steps have the same pair of stages. Every rank of the job may ask;
// most will find nothing to do. Pairs agree: what a sends to b is what b expects from a.
RankExchange BuildExchange(const std::vector<TensorType>& types,
                           const std::vector<BoxingStep>& steps, const Mesh& mesh, int64_t rank);

}  // namespace weir
