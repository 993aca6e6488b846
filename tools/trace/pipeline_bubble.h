// Measures the bubble of a pipeline in a trace: the share of a step, between its first forward act
// and its last act of a backward pass (gradients of weights included), in which devices did no such
// act. A device counts once for each of its queues that does such acts. Not here: the cause
// (critical_path.h), other waits. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "tools/trace/trace_reader.h"

namespace weir::trace {

// Returns the mean of the steps from `first_step` to `last_step` that the trace holds; 0 without
// such acts.
double MeasurePipelineBubble(const TraceReader& reader, int64_t first_step, int64_t last_step);

}  // namespace weir::trace
