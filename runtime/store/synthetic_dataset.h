// Seeded random data that needs no file, for tests and trials of speed. "tokens"
// and "targets" are one stream, as in text, of uniform tokens (nothing can be learnt beyond the
// size of the vocabulary); any other i32 feed is uniform below `classes`, any f32 feed in [0, 1).
// Nothing is held out. Thread rule: see dataset.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/store/dataset.h"

namespace weir {

struct SyntheticDataOptions {
  std::vector<std::string> feeds;  // the inputs of the model
  int64_t vocabulary = 256;        // of tokens and targets
  int64_t classes = 10;            // of other integers
  uint64_t seed = 0;
};

std::unique_ptr<Dataset> MakeSyntheticDataset(const SyntheticDataOptions& options);

}  // namespace weir
