// Rank classes: the ranks of a stage that differ only by their place in the stage's mesh behave alike where their costs
// are equal, so the first rank of each stage stands for all. What it sends to a rank that is not there arrives where
// that rank's counterpart would have sent to the one that is: exchange the places 0 and d along every axis, and the
// message from 0 to d becomes the one from d to 0.
//
// Exact where every rank of a stage has the same acts in the same order and links that look alike from each; a plan
// whose messages do not pair up that way is refused.
// Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/plan.h"
#include "sbp/mesh.h"

namespace weir {

// By outgoing edge of a representative, the incoming edge of one that its tokens arrive on. `plans` are those of the
// first ranks of all stages. kInvalidArgument (W0705) names a register that has no counterpart.
absl::StatusOr<std::map<uint64_t, uint64_t>> PairRepresentatives(const std::vector<Plan>& plans, const Mesh& mesh);

}  // namespace weir
