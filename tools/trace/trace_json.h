// The output of `weir trace report --json`: the report as one JSON object, with times in
// nanoseconds and shares from 0 to 1. Names of fields do not change; new fields may be added. Not
// here: the meaning of the numbers (tools/trace/trace_report.h, why_slow.h). Thread rule: pure
// functions.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/trace/last_state.h"
#include "tools/trace/trace_report.h"
#include "tools/trace/why_slow.h"

namespace weir::trace {

// If there is no `why`, its reason stands in "why_slow_error". A run that did not end whole has a
// `last_state`.
std::string ToJson(const TraceReport& report, const absl::StatusOr<WhySlow>& why,
                   const std::optional<LastState>& last_state = std::nullopt);

}  // namespace weir::trace
