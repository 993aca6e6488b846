// A GPT-2 style language model over bytes: learned positions, pre-norm blocks with
// biases, GELU. Initialised as GPT-2: normal 0.02, projections into the residual
// stream smaller by sqrt(2 layers).
// Thread rule: pure function.
#pragma once

#include "absl/status/statusor.h"
#include "tools/zoo/zoo_options.h"

namespace weir {

// kInvalidArgument names the flag that makes no sense.
absl::StatusOr<Job> GptJob(const TransformerOptions& options);

}  // namespace weir
