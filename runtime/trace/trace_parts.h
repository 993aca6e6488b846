// Joins the traces of several processes, each of its own ranks and by its own clock, into one
// trace.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::trace {

struct TracePart {
  std::string bytes;  // a trace that describes its job
  // The time by which the clock of the part's process is ahead of the job's clock.
  int64_t clock_ahead_ns = 0;
};

// Returns one trace by the job's clock that describes the job once. kDataLoss (W0531) if a part is
// no trace.
absl::StatusOr<std::string> JoinTraceParts(const std::vector<TracePart>& parts);

}  // namespace weir::trace
