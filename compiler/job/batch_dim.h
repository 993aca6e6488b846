// The dimension that counts the samples of a step. Micro-batches divide this dimension. The
// compiler gives no dimension name a meaning of its own: the batch dimension is the one that
// `training.batch_dim` names, or else the first dimension of the inputs of `main`.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "ops/defs/type_text.h"
#include "proto/job.pb.h"

namespace weir::compiler {

// Returns a name of `dims`, the dimension table of the job's graph. kInvalidArgument:
// `training.batch_dim` names no dimension of the table or one that no input of `main` has (W0436),
// or `training.batch_dim` is empty and the inputs of `main` do not share a first dimension of the
// table (W0904), or there is no `main` (W0410).
absl::StatusOr<std::string> BatchDim(const proto::Job& job, const ops::DimTable& dims);

}  // namespace weir::compiler
