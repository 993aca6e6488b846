// Boxing that prefers the links inside hosts to those between hosts.
//
// PlanBoxing counts every byte alike. Where places know their hosts, a boxing may instead go first
// within hosts, then between them, then within them again. For an all-reduce of T bytes over n
// ranks, g of them on each of h hosts:
//
//                      bytes between hosts   bytes in all
//   on one level       2(n-g)T               2(n-1)T
//   on two levels      2(h-1)T               2(n-1)T
//
// An all-gather and a reduce-scatter need g times fewer bytes between hosts, too, and so does a
// move to copies on another stage whose g ranks share a host.
//
// The plan is made by the one-level planner on cut meshes (HostCut in sbp/places.h): each mesh axis
// lies inside hosts or between hosts there, and the order of the axes in the sequence of steps
// makes the levels. Two levels are used only where they send fewer bytes between hosts and do not
// change the result: sums of f32 have the same bits if the ranks of one host are a power of two in
// number and neighbours in the sum, because kernels combine sources in pairs
// (runtime/base/transfer/transfer.h). They are neighbours if the merged axes inside hosts are
// behind those between hosts in the mesh. Sums of bf16 would be rounded once more, so they stay on
// one level.
//
// Where places have unequal meshes, the devices of each mesh are cut into blocks that lie on one
// host each. A move to a cut place brings every element that a block asks for to one device of the
// block, and the block spreads the element. Between stages of unequal meshes, a device takes what
// it gets from a device on its own host, if one has it (sbp/rank_view.h). So a move of T bytes to
// copies everywhere sends T bytes to each host that has no copy yet, if each host has one block.
// Sums are merged before and after the move as on one level. Moves of partial tensors between
// places of one mesh stay on one level. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "sbp/boxing.h"
#include "sbp/places.h"

namespace weir::sbp {

// A Boxing is a plan of steps and what the steps are about.
struct Boxing {
  // The tensor as the steps see it: the same elements in the same order, perhaps with other
  // dimensions. Local shards have the bytes of the tensor's own local shards.
  TensorType type;
  Places places;  // over whose meshes the steps have their layouts
  std::vector<BoxingStep> steps;
};

// Two levels take one to three steps more than one. A tensor that would save less than this between
// hosts travels faster in fewer steps.
inline constexpr int64_t kSavedBytesMin = 1024;

// Returns the boxing with the fewest bytes between hosts. If there is no host cut, or two levels
// would save less than `saved_bytes_min` between hosts, the steps are those of PlanBoxing, for
// `type` and `places`. Errors: those of PlanBoxing.
absl::StatusOr<Boxing> PlanBoxingOverHosts(const TensorType& type, const Placement& from,
                                           const Placement& to, const Places& places,
                                           int64_t saved_bytes_min = kSavedBytesMin);

// Returns the bytes that the steps of a tensor of `type` send from host to host, summed over all
// ranks: a closed form, as TotalBytes is (sbp/boxing.h). `places`, over whose meshes the steps have
// their layouts, are those of `cut` or those that were cut. Where an axis leaves hosts without
// being cut in the steps and splits a dimension unevenly, the result may be wrong by a few units of
// that dimension.
int64_t BytesBetweenHosts(const TensorType& type, const std::vector<BoxingStep>& steps,
                          const Places& places, const HostCut& cut);

// Returns the same bytes for any hosts that `places` know, as a sum over all receivers.
int64_t BytesBetweenHosts(const TensorType& type, const std::vector<BoxingStep>& steps,
                          const Places& places);

// Returns whether a step changes nothing but along axes inside hosts; nullopt if `cut` is null, if
// `places`, over whose meshes the step has its layouts, are not cut, or if the step moves a tensor
// and the cut is not one of all places.
std::optional<bool> StaysInHosts(const BoxingStep& step, const Places& places, const HostCut* cut);

}  // namespace weir::sbp
