// The difference of two runs of one job, or of a prediction and a run: where the time of a step
// went in each, matched by names.
//
// Actors match if their plan nodes have one name and run on the same rank. A node that only one of
// the plans has stays without a match, as do all nodes of ranks that only one run has. Equal nodes
// of all layers and ranks are then one row, so that the rows are few.
//
// The rows of the critical path are means of the typical steps: all but the first and the outliers.
// They add up to the difference of the mean steps. All rows are sorted by the size of the
// difference. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

struct DiffRow {
  std::string
      cause;  // "compute", "token under way"; of a root: "work", "on the way", "between acts"
  std::string name;                  // of all layers; between acts: empty
  std::optional<double> a_ns, b_ns;  // per step; none: that run has no such thing
  double more_ns() const { return b_ns.value_or(0) - a_ns.value_or(0); }
};

// A WorkDiff is the acts of matching actors: the time of all of them in a step, on a rank.
struct WorkDiff {
  std::string name;  // the function, of all layers
  std::string phase;
  double a_ns = 0, b_ns = 0;          // per step, of the matched actors, mean over their ranks
  double a_act_ns = 0, b_act_ns = 0;  // mean of an act
  int64_t matched = 0, only_a = 0, only_b = 0;  // actors
  double more_ns() const { return b_ns - a_ns; }
};

struct StepDiff {
  int64_t step = 0;
  std::optional<int64_t> a_ns, b_ns;  // none: the trace does not hold the step
};

struct RunDiff {
  double a_step_ns = 0, b_step_ns = 0;  // mean of the typical steps
  int64_t a_ranks = 0, b_ranks = 0;
  std::vector<StepDiff> steps;  // by number
  std::vector<DiffRow> parts;   // of a steady step, mean over queues (step_parts.h); not sorted
  std::vector<DiffRow> path;    // of the critical path
  std::vector<DiffRow> waits;   // roots of waits, mean over queues (wait_roots.h)
  std::vector<WorkDiff> work;
  int64_t matched = 0, only_a = 0, only_b = 0;  // actors
};

RunDiff CompareRuns(const RecordedRun& a, const RecordedRun& b);

// Returns the text of `weir trace diff`, with at most `rows_max` rows in each table.
std::string ToText(const RunDiff& diff, const std::string& a_name, const std::string& b_name,
                   size_t rows_max);

// Returns the sentence that sums up: which run is slower, by how much, and most of all where.
std::string Verdict(const RunDiff& diff, const std::string& a_name, const std::string& b_name);

}  // namespace weir::trace
