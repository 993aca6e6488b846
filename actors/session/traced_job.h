// Describes ranks at rest to the trace writer, which knows neither plans nor engines.
// Thread rule: a pure function.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"
#include "runtime/base/tick_clock.h"
#include "runtime/trace/trace_file.h"

namespace weir::actors {

// The result refers to the executors' rings.
trace::TracedJob MakeTracedJob(absl::Span<RankExecutor* const> ranks, int64_t first_step,
                               const TickScale& scale);

}  // namespace weir::actors
