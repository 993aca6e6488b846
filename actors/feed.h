// What a running plan asks of the world outside: data for its sources, a place for
// its metrics, first values for its states. The engine calls these; the trainer
// implements them. They are not part of the plan and hold no actor.
// Whatever a feed delivers, the engine checks every integer that the plan gives a range (CheckFed)
// before anything reads it. Thread rule: one object serves all ranks of a process, so every method
// is called from several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "actors/plan.h"
#include "runtime/base/tensor_slice.h"

namespace weir {

class DataFeed {
 public:
  virtual ~DataFeed() = default;
  // Writes exactly the elements of `slice` (slice.bytes() bytes) of the tensor that
  // `feed` yields for this micro-batch. The same arguments must always give the same
  // bytes. An error stops all ranks. May block for as long as reading takes.
  virtual absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                            const TensorSlice& slice, void* out) = 0;
  // Which sample stands in row `row` of the micro-batch, for messages.
  virtual std::string SampleText(const std::string& feed, int64_t step, int64_t micro_batch,
                                 int64_t row) const;
};

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  // One value of one rank that has a sink actor for `metric`. Must not block.
  virtual void Report(const std::string& metric, int64_t step, int64_t micro_batch,
                      float value) = 0;
};

// Checks that every value which the source `actor` was fed for one micro-batch is in the range of
// the plan. `memory` holds the elements of the actor's feed_slice. W0906 (kInvalidArgument) names
// the first value out of range: feed, sample, position, value, and who reads it as an index.
absl::Status CheckFed(const DataFeed& feed, const PlanActor& actor, int64_t step,
                      int64_t micro_batch, const void* memory);

// Writes the first value of the shard `slice` of state `name` to `memory`
// (slice.bytes() bytes). Must be a function of the name and the global element alone,
// so that every layout starts from the same numbers.
using StateInitializer = std::function<absl::Status(
    const std::string& name, const TensorSlice& slice, const PlanInitializer& init, void* memory)>;

}  // namespace weir
