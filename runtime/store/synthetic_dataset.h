// Seeded random data that needs no file, for tests and trials of speed. The dataset draws the
// values that the model requires: integers uniform over the model's range, real numbers uniform in
// [0, 1). A model can learn nothing from the data but the sizes of those ranges. Feeds may have any
// name. Two integer feeds called "tokens" and "targets" draw from one stream of numbers, as text
// does: with equal ranges and shapes, a target is the next token. Nothing is held out. Thread rule:
// see dataset.h.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/store/dataset.h"

namespace weir::store {

// The range of integers that no op reads as indices, so that their range is unknown.
inline constexpr int64_t kUnknownRangeBelow = 256;

struct SyntheticDataOptions {
  std::vector<FeedRequest> requests;  // those of one feed have one element type
  uint64_t seed = 0;
};

// kInvalidArgument: bf16, or a request without a dimension that counts samples (W0056); a feed of
// two element types.
absl::StatusOr<std::unique_ptr<Dataset>> MakeSyntheticDataset(const SyntheticDataOptions& options);

}  // namespace weir::store
