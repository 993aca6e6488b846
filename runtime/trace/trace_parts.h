// Joins what several processes wrote, each of its own ranks and by its own clock, into one trace.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct TracePart {
  std::string bytes;           // a trace that describes its job
  int64_t clock_ahead_ns = 0;  // this much the clock of its process is ahead of the job's
};

// By the job's clock, described once. kDataLoss (W0531) if a part is no trace.
absl::StatusOr<std::string> JoinTraceParts(const std::vector<TracePart>& parts);

}  // namespace weir
