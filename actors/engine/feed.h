// Interfaces through which a running plan asks for data for its sources, a place for its metrics,
// and first values for its states. The engine calls these interfaces, and the trainer implements
// them. The objects are not part of the plan and hold no actor. The engine checks every integer of
// a feed that the plan gives a range (CheckFed) before any kernel reads the integer. Thread rule:
// one object serves all ranks of a process, so every method is called from several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "actors/plan/plan.h"
#include "runtime/base/tensor_slice.h"

namespace weir::actors {

class DataFeed {
 public:
  virtual ~DataFeed() = default;
  // Writes exactly the elements of `slice` (slice.bytes() bytes) of the tensor that `feed` yields
  // for this micro-batch. The same arguments must always give the same bytes. An error stops all
  // ranks. The call may block for as long as reading takes.
  virtual absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                            const TensorSlice& slice, void* out) = 0;
  // Returns a text, for messages, that names the sample in row `row` of the micro-batch.
  virtual std::string SampleText(const std::string& feed, int64_t step, int64_t micro_batch,
                                 int64_t row) const;
};

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  // Reports one value of one rank that has a sink actor for `metric`. Must not block.
  virtual void Report(const std::string& metric, int64_t step, int64_t micro_batch,
                      float value) = 0;
};

// Checks that every value which the source `actor` was fed for one micro-batch is in the range of
// the plan. `memory` holds the elements of the actor's feed_slice. W0906 (kInvalidArgument) names
// the first value out of range: feed, sample, position, value, and the op that reads the value as
// an index.
absl::Status CheckFed(const DataFeed& feed, const PlanActor& actor, int64_t step,
                      int64_t micro_batch, const void* memory);

// Writes the first value of a shard, state.slice of a state, to `memory` (state.slice.bytes()
// bytes). The value must be a function of the state's name and the global element alone, so that
// every layout starts from the same numbers. A state whose first value is zeros is not asked for.
using StateInitializer = std::function<absl::Status(const PlanState& state, void* memory)>;

}  // namespace weir::actors
