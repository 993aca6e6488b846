// A Llama style language model over bytes: rotary positions, RMS norm, grouped-query
// attention, SwiGLU, no biases.
// Thread rule: pure function.
#pragma once

#include "absl/status/statusor.h"
#include "tools/zoo/zoo_options.h"

namespace weir::zoo {

// kInvalidArgument: a flag makes no sense; the error names the flag.
absl::StatusOr<proto::Job> LlamaJob(const TransformerOptions& options);

}  // namespace weir::zoo
