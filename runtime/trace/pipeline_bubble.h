// The bubble of a pipeline as a trace shows it: the share of a step, between its first forward act
// and its last act of a backward pass (gradients of weights included), in which devices did none of
// these. Not here: whose fault it is (critical_path.h), other waits. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "runtime/trace/trace_reader.h"

namespace weir {

// Mean of the steps from `first_step` to `last_step` that the trace holds; 0 without such acts.
double MeasurePipelineBubble(const TraceReader& reader, int64_t first_step, int64_t last_step);

}  // namespace weir
