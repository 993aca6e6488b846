// Where a run stands in its data: a step and an offset. Sample n of the run is row (n mod rows) of
// its micro-batch:
//   n = sample_offset + (step * micro_batches + micro_batch) * rows + row
// A step therefore has the same samples for any number of micro-batches. The offset is 0 until a
// run is resumed with another number of samples in a step. The data cursor of a checkpoint is the
// number of samples used; the offset of a resumed run follows from the cursor.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>

namespace weir::store {

enum class DataPart : uint8_t {
  kTrain,    // random, without end
  kHeldOut,  // in order, once; positions from num_held_out_batches() on are an error
};

struct BatchPosition {
  DataPart part = DataPart::kTrain;
  int64_t step = 0;         // from 0
  int64_t micro_batch = 0;  // of the step, from 0
  int64_t micro_batches = 1;
  // The samples that the run has used before `step`, less those that as many steps of the present
  // size use. May be negative; sample numbers are not.
  int64_t sample_offset = 0;
};

// Returns the number of the sample in row `row` of the micro-batch at `position`.
inline int64_t SampleNumber(const BatchPosition& position, int64_t rows, int64_t row) {
  return position.sample_offset +
         (position.step * position.micro_batches + position.micro_batch) * rows + row;
}

// Returns how many samples a run has used after `steps` steps. Its present steps have
// `samples_per_step` samples.
inline int64_t SamplesUsed(int64_t sample_offset, int64_t steps, int64_t samples_per_step) {
  return sample_offset + steps * samples_per_step;
}
// Returns the offset with which steps of `samples_per_step` samples go on behind the `used` samples
// of the first `steps` steps.
inline int64_t SampleOffsetBehind(int64_t used, int64_t steps, int64_t samples_per_step) {
  return used - steps * samples_per_step;
}

}  // namespace weir::store
