// TinyGptJob makes a job whose kernels and steps take next to no time, for tests that measure real
// kernels and steps.
// Thread rule: a pure function.
#pragma once

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/zoo/gpt.h"

namespace weir::sim {

// Returns a GPT of one layer, of width 8, over 8 tokens of 16, with a batch of 2.
inline absl::StatusOr<proto::Job> TinyGptJob() {
  zoo::TransformerOptions tiny;
  tiny.layers = 1;
  tiny.hidden = 8;
  tiny.heads = 2;
  tiny.vocab = 16;
  tiny.sequence = 8;
  tiny.training.batch = 2;
  return zoo::GptJob(tiny);
}

}  // namespace weir::sim
