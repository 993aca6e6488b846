// The dimension that counts the samples of a step, which micro-batches divide. No name has a
// meaning: it is what `training.batch_dim` names, else the first dimension of the inputs of `main`.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "ops/defs/type_text.h"
#include "proto/job.pb.h"

namespace weir::compiler {

// A name of `dims`, the dimension table of the job's graph. kInvalidArgument: `training.batch_dim`
// names no dimension of the table (W0436), or is empty and the inputs of main have no first
// dimension of the table in common (W0904) or there is no main (W0410).
absl::StatusOr<std::string> BatchDim(const Job& job, const DimTable& dims);

// The error (W0410) for a graph whose `main` names no function.
absl::Status NoMain(const Job& job);

}  // namespace weir::compiler
