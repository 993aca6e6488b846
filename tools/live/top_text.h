// The screen of `weir top`: a run as lines of text that fit 80 columns, without colours.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/live/live_reader.h"

namespace weir::live {

inline constexpr int kTopColumns = 80;

// A run as it is seen now.
struct SeenRun {
  int64_t pid = 0;  // as the reader sees it
  bool is_alive = true;
  LiveState state;
};

// Returns the screen of one run. Ranks with most to tell come first, and at most `rows_max` of
// them. `now_unix_ms` is the time of the machine.
std::string TopText(const SeenRun& run, int64_t now_unix_ms, int rows_max);

// Returns a table of runs, a line each.
std::string RunsText(const std::vector<SeenRun>& runs, int64_t now_unix_ms);

// Returns the state in the text format of Prometheus: a gauge for each number.
std::string PrometheusText(const SeenRun& run, int64_t now_unix_ms);

}  // namespace weir::live
