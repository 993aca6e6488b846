// Rank classes: the ranks of a stage that differ only by their place in the stage's mesh behave
// alike where their costs are equal, so the first rank of each stage stands for all. What it sends
// to a rank that is not there arrives where that rank's counterpart would have sent to the one that
// is: exchange the places 0 and d along every axis, and the message from 0 to d becomes the one
// from d to 0.
//
// Exact where every rank of a stage has the same acts in the same order and links that look alike
// from each. A few scalars (norms, metrics) go through one rank of a stage: such small messages are
// taken to be on time. Any other message without a counterpart means that the ranks are not alike,
// and is refused. Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/plan.h"
#include "sbp/mesh.h"

namespace weir {

struct RankPairs {
  // By outgoing edge of a representative, the incoming edge of one that its tokens arrive on.
  std::map<uint64_t, uint64_t> images;
  // Edges of scalars whose other end nobody stands for.
  std::vector<uint64_t> loose;
};

// `plans` are those of the first ranks of all stages. kInvalidArgument (W0705) names a register
// that has no counterpart.
absl::StatusOr<RankPairs> PairRepresentatives(const std::vector<Plan>& plans, const Mesh& mesh);

}  // namespace weir
