// Text as bytes. A sample is a window of sequence + 1 bytes; "tokens" are the first `sequence`
// bytes, and "targets" are the last `sequence` bytes. Training windows start anywhere in the
// training part, uniformly and independently; held-out windows follow one another.
// Thread rule: see dataset.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/store/dataset.h"

namespace weir::store {

struct TextDataOptions {
  std::string path;
  double held_out = 0;   // share of the file, at its end; 0 <= held_out < 1
  int64_t batch = 1;     // samples per step
  int64_t sequence = 1;  // tokens per sample
  uint64_t seed = 0;
};

// kNotFound: no file. kInvalidArgument: the file is too short for one training window, or, if
// anything is held out, for one held-out batch.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTextDataset(const TextDataOptions& options);

}  // namespace weir::store
