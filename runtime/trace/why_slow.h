// The second half of `weir trace report`: where the time of a step goes along its critical
// path, and what changes would make of it, by replays of the recorded run; first of all how near
// the replay without changes comes to what was recorded, since that is what the rest is worth. Then
// what to do about it. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/trace/critical_path.h"
#include "runtime/trace/stragglers.h"
#include "runtime/trace/trace_reader.h"
#include "runtime/trace/what_if.h"

namespace weir {

struct WhySlowOptions {
  std::optional<int64_t> step;  // the path of this one; else of all but the first
  std::vector<std::string>
      what_ifs;  // changes to try (what_if.h); empty: those that the record points to
};

struct WhySlow {
  CriticalPath path;
  SpeedReport speeds;
  std::map<int, std::string>
      devices;                  // by rank: "stage 0, dp=0, tp=1"; empty if the trace does not say
  double recorded_step_ns = 0;  // mean over all steps but the first
  double replayed_step_ns = 0;  // the same of a replay without changes; 0: it came to a standstill
  std::vector<WhatIfRow> what_ifs;  // best first
  // How far the replay is off, as a share of what was recorded.
  double replay_error() const { return replayed_step_ns / std::max(recorded_step_ns, 1.0) - 1; }
};

// kFailedPrecondition if the trace does not hold what a replay needs (recorded_run.h); W0533 for a
// change that is none, W0534 for a step that is not in the trace.
absl::StatusOr<WhySlow> FindWhySlow(const TraceReader& trace, const WhySlowOptions& options);

// At most `rows_max` rows in each table; equal rows of many layers are one.
std::string ToText(const WhySlow& why, size_t rows_max);

// What to change first, in a sentence or two; empty if nothing that was tried gains anything.
std::string Advice(const WhySlow& why);

}  // namespace weir
