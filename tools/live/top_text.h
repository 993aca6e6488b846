// The screen of `weir top`: a run as lines of text that fit a terminal, without colours. A line
// that is cut ends with "…". Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/live/live_reader.h"

namespace weir::live {

inline constexpr int kTopColumns = 80;  // where there is no terminal

// Returns the screen of one run. Ranks with most to tell come first, and at most `rows_max` of
// them. `now_unix_ms` is the time of the machine.
std::string TopText(const SeenRun& run, int64_t now_unix_ms, int rows_max,
                    int columns = kTopColumns);

// Returns a table of runs, a line each.
std::string RunsText(const std::vector<SeenRun>& runs, int64_t now_unix_ms,
                     int columns = kTopColumns);

// Returns the state in the text format of Prometheus: a gauge for each number. What a run does now
// is left out once the run is over.
std::string PrometheusText(const SeenRun& run, int64_t now_unix_ms);

}  // namespace weir::live
