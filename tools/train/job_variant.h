// The same model for another purpose: a trained job turned into one that evaluates
// or that generates text on one device. Names of weights stay, so weights carry over.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

// Without dropout, else unchanged.
Job EvaluationJob(const Job& job);

// A language model that runs on one window at a time.
struct GenerationVariant {
  Job job;            // one device, one sample, one micro-batch, no dropout
  std::string input;  // of main: the window of tokens, i32[1, window]
  int64_t window = 1;
  int64_t below = 0;  // tokens are from 0 to below this
};
// The input is the only one of main that looks up rows of a table and is i32[samples, window].
// W0070 (kInvalidArgument) if there is none, or more than one.
absl::StatusOr<GenerationVariant> GenerationJob(const Job& job);

}  // namespace weir
