// A GPT-2 style language model over bytes: learned positions, pre-norm blocks with biases, GELU.
// Weights start as in GPT-2: normal 0.02, with projections into the residual stream smaller by
// sqrt(2 layers).
// Thread rule: pure function.
#pragma once

#include "absl/status/statusor.h"
#include "tools/zoo/zoo_options.h"

namespace weir::zoo {

// kInvalidArgument: a flag makes no sense; the error names the flag.
absl::StatusOr<proto::Job> GptJob(const TransformerOptions& options);

}  // namespace weir::zoo
