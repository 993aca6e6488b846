// What `weir trace report --json` prints: the report as one JSON object, times in nanoseconds,
// shares from 0 to 1. Names of fields do not change; new ones may be added. Not here: what the
// numbers mean (runtime/trace/trace_report.h, why_slow.h). Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "runtime/trace/trace_report.h"
#include "runtime/trace/why_slow.h"

namespace weir {

// Without `why`, its reason stands in "why_slow_error".
std::string ToJson(const TraceReport& report, const absl::StatusOr<WhySlow>& why);

}  // namespace weir
