// Finds when each step of a recorded run began and ended, by the rule of step_rule.h, from a trace
// file alone.
//
// A step counts only if all of its acts are there: a trace keeps the last acts of each rank, and a
// job that failed ends in the middle of a step. Of the whole steps, the result has the last ones
// without a gap between them.
// Thread rule: a value.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/trace/trace_reader.h"

namespace weir::trace {

struct StepTime {
  int64_t step = 0;
  int64_t begin = 0;  // ns, as everything in a trace
  int64_t end = 0;
  enum class Place : uint8_t { kWithinRun, kFirstOfRun } place = Place::kWithinRun;

  int64_t ns() const { return end - begin; }
};

inline constexpr int64_t kOutlierFactor = 3;
inline constexpr size_t kStepsForOutliers = 5;
inline constexpr size_t kOutlierPart = 10;  // at most one step in so many is an outlier

struct StepTimes {
  std::vector<StepTime> steps;  // one after another; empty if no step is whole
  // The session went no further than the last of the steps: that step ends with the run.
  bool last_ends_run = false;

  // Returns the sum of the steps from steps[from] on: their wall time without rests.
  int64_t SumFrom(size_t from) const {
    int64_t ns = 0;
    for (size_t i = from; i < steps.size(); ++i) ns += steps[i].ns();
    return ns;
  }
  // Returns the first steady step. Steady steps are all but the first, which fills pipelines and
  // caches; a single step counts as steady.
  size_t FirstSteady() const { return steps.size() > 1 ? 1 : 0; }
  // Returns the places of outliers among the steady steps, ascending: steps that take over
  // kOutlierFactor times the median of steady steps, if these are few. Many long steps are no
  // outliers but a habit of the run, such as an update in every fourth step. The outliers of a run
  // of fewer than kStepsForOutliers steady steps are unknown, and none are returned.
  std::vector<size_t> Outliers() const;
  // Returns the median of the steady steps, in ns. Precondition: there are steps.
  int64_t MedianNs() const;
  // Returns the part of [from, to) that lies in steps from steps[first] on;
  // 0 if `to` is not after `from`.
  int64_t Inside(int64_t from, int64_t to, size_t first) const;
};

StepTimes FindStepTimes(const TraceReader& trace);

// Returns, by rank and then by actor of its plan, whether the actor's acts may end a step. Empty
// for a rank whose plan the trace lacks.
std::map<RankId, IdVector<ActorId, char>> FindStepEnders(const TraceReader& trace);

}  // namespace weir::trace
