// Takes the names of dimensions away from a job and lets the compiler find them again.
// Thread rule: pure function.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir::fuzz {

// Returns "" if the graph with found dimensions is sound and has the shapes of the job's graph, or
// a code if the job's own graph is refused. An error is a fault of Weir.
absl::StatusOr<std::string> FindNamesAgain(const proto::Job& job);

}  // namespace weir::fuzz
