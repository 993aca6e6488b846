// Which ranks a worker process holds, what it is called, and which ranks a user wants to see.
// It starts nothing. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct WorkerPlacement {
  std::vector<int> ranks;  // contiguous, ascending, not empty
  std::string label;       // RankLabel(ranks)
};

// Ranks 0..num_ranks-1 over the processes in contiguous blocks; the first num_ranks %
// num_processes hold one more. Rejected (W0090) unless 1 <= num_processes <= num_ranks.
absl::StatusOr<std::vector<WorkerPlacement>> PlaceRanks(int num_ranks, int num_processes);

// "rank 5", "rank 2-3", "rank 0,3-5". `ranks` ascend.
std::string RankLabel(const std::vector<int>& ranks);

// "0,3-5" -> {0, 3, 4, 5}: ascending, each once. Spaces around numbers are allowed. Rejected
// (W0091) if it is anything else or names a rank that is not below num_ranks.
absl::StatusOr<std::vector<int>> ParseRanks(const std::string& text, int num_ranks);

}  // namespace weir
