// The output of `weir trace diff --json`: the difference of two runs as one JSON object, with times
// in nanoseconds. Names of fields do not change; new fields may be added. A field that only one run
// has is null in the other. Thread rule: pure functions.
#pragma once

#include <string>

#include "tools/trace/run_diff.h"

namespace weir::trace {

std::string ToJson(const RunDiff& diff, const std::string& a_name, const std::string& b_name);

}  // namespace weir::trace
