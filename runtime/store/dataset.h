// A Dataset answers one question: what are the elements of this slice of this
// feed in this batch? The answer is a pure function of (options, batch position, slice),
// so each rank fills just its shard, in any order, and all ranks agree.
//
// Not a loader with threads or a queue: the engine's source actors call Fill ahead
// of need. Sample n of the run is row (n mod rows) of its micro-batch:
//   n = (step * micro_batches + micro_batch) * rows + row
// so the same samples are seen in a step however it is cut into micro-batches.
//
// Feeds: text and synthetic have "tokens" and "targets", i32[batch, sequence], targets
// being the tokens that follow; IDX has "images" f32[batch, ...] in [0, 1] and "labels" i32[batch].
// Thread rule: immutable after opening; any thread calls Fill.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/tensor_slice.h"

namespace weir {

enum class DataPart : uint8_t {
  kTrain,    // random, without end
  kHeldOut,  // in order, once; positions from num_held_out_batches() on are an error
};

struct BatchPosition {
  DataPart part = DataPart::kTrain;
  int64_t step = 0;         // from 0
  int64_t micro_batch = 0;  // of the step, from 0
  int64_t micro_batches = 1;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::vector<std::string> feeds() const = 0;
  // Whole batches of held-out samples; samples beyond the last whole batch are not used.
  virtual int64_t num_held_out_batches() const = 0;
  // "text file.txt: 1,000,000 bytes to train on, 111,111 held out": for the log.
  virtual std::string Describe() const = 0;

  // Writes slice.bytes() to `out`. slice.global_shape is that of one micro-batch. Errors:
  // an unknown feed (the nearest is named) or a slice whose shape or dtype the feed cannot have.
  virtual absl::Status Fill(const std::string& feed, const BatchPosition& position, const TensorSlice& slice,
                            void* out) const = 0;
};

// Number of the sample in row `row` of the micro-batch at `position`.
inline int64_t SampleNumber(const BatchPosition& position, int64_t rows, int64_t row) {
  return (position.step * position.micro_batches + position.micro_batch) * rows + row;
}

// The error for a feed that is none of `known`.
absl::Status UnknownFeed(const std::string& feed, const std::vector<std::string>& known);
// The error for a slice that is not `expected` ("i32[batch, sequence]").
absl::Status WrongFeedType(const std::string& feed, const std::string& expected, const TensorSlice& slice);

}  // namespace weir
