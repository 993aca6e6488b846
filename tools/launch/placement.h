// Decides the ranks and the label of a worker process, and parses the ranks that a user wants to
// see. Starts nothing. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"

namespace weir::launch {

struct WorkerPlacement {
  std::vector<RankId> ranks;  // contiguous, ascending, not empty
  std::string label;          // RankLabel(ranks)
};

// Spreads ranks 0..num_ranks-1 over the processes in contiguous blocks. The first num_ranks %
// num_processes processes hold one rank more. Rejected (W0090) unless 1 <= num_processes <=
// num_ranks.
absl::StatusOr<IdVector<WorkerId, WorkerPlacement>> PlaceRanks(int num_ranks, int num_processes);

// Returns "rank 5", "ranks 2-3" or "ranks 0,3-5". `ranks` ascend.
std::string RankLabel(const std::vector<RankId>& ranks);

// Parses "0,3-5" into {0, 3, 4, 5}: ascending, each rank once. Spaces around numbers are allowed.
// Rejected (W0091) if the text is anything else or names a rank that is not below num_ranks.
absl::StatusOr<std::vector<RankId>> ParseRanks(const std::string& text, int num_ranks);

}  // namespace weir::launch
