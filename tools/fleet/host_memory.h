// Checks whether the ranks of a job fit the memory of their hosts, before anything starts there.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir::fleet {

// The ranks on a host. Hosts that are parts of one machine share its memory.
struct HostShare {
  std::string host;
  std::string machine;  // the same for the parts of one machine
  int64_t memory_bytes = 0;
  int num_ranks = 0;
  int64_t rank_bytes = 0;  // that these ranks need together
};

// Rejected (W0884) with each machine whose ranks need more than it has, and the device of the job
// that needs most (`largest_rank_bytes`).
absl::Status CheckHostMemory(const std::vector<HostShare>& shares, int64_t largest_rank_bytes);

}  // namespace weir::fleet
