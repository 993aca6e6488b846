// The same model for another purpose: a trained job turned into one that evaluates
// or that generates text on one device. Names of weights stay, so weights carry over.
// Thread rule: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

// Without dropout, else unchanged.
Job EvaluationJob(const Job& job);

// One device, one sample, one micro-batch, no dropout. kInvalidArgument if the model does
// not read i32 "tokens" of dimensions batch and sequence.
absl::StatusOr<Job> GenerationJob(const Job& job);

}  // namespace weir
