// Rank classes. Ranks of a stage that differ only by their place in the stage's mesh behave alike
// if their costs are equal, so the first rank of each stage stands for all. A message to a rank
// that is not simulated arrives as the message that this rank's counterpart would send back:
// exchange the places 0 and d along every axis, and the message from 0 to d becomes the message
// from d to 0.
//
// The result is exact if every rank of a stage has the same acts in the same order, and links that
// look alike from each rank. A few scalars (norms, metrics) go through one rank of a stage; such
// small messages are assumed to be on time. Any other message without a counterpart means that the
// ranks are not alike, and is refused. Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/plan/plan.h"
#include "runtime/base/ids.h"
#include "runtime/base/rank_ranges.h"
#include "sbp/places.h"

namespace weir::sim {

struct RankPairs {
  // images[e], for an outgoing edge e of a representative, is the incoming edge of a representative
  // on which the tokens of e arrive.
  std::map<EdgeId, EdgeId> images;
  // Edges of scalars whose other end has no representative.
  std::vector<EdgeId> loose;
  // The ranks of the stage of each representative.
  std::map<RankId, RankRanges> stands_for;
};

// `plans` are the plans of the first ranks of all stages, with the far ends of their registers.
// kInvalidArgument (W0705) names a register that has no counterpart.
absl::StatusOr<RankPairs> PairRepresentatives(const std::vector<actors::Plan>& plans,
                                              const sbp::Places& places);

}  // namespace weir::sim
