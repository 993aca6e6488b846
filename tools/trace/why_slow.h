// The second half of `weir trace report`: the shares of a step's time along its critical path, the
// effects of changes by replays of the recorded run, and advice. The first figure is the difference
// between the replay without changes and the record, since that difference is the measure of trust
// in the rest. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/trace/back_pressure.h"
#include "tools/trace/critical_path.h"
#include "tools/trace/memory_use.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/step_parts.h"
#include "tools/trace/step_paths.h"
#include "tools/trace/stragglers.h"
#include "tools/trace/trace_reader.h"
#include "tools/trace/transfers.h"
#include "tools/trace/wait_roots.h"
#include "tools/trace/what_if.h"

namespace weir::trace {

struct WhySlowOptions {
  // The index of the step of the path; none: all but the first and the outliers.
  std::optional<int64_t> step;
  // The changes to try (what_if.h); empty: the changes that the record suggests.
  std::vector<std::string> what_ifs;
  // Is told what FindWhySlow does next: "replays the run". May be null.
  std::function<void(const std::string& doing)> tell;
};

// An OutlierStep took many times as long as the others (StepTimes::Outliers).
struct OutlierStep {
  int64_t step = 0;
  double ns = 0;
};

// An ActCost tells what acts cost as such, on the device that does most acts in a step.
struct ActCost {
  double mean_ns = 0;   // of an act
  double fixed_ns = 0;  // of the shortest tenth of acts, which hardly work
  double acts_per_step = 0;
};

struct WhySlow {
  CriticalPath path;
  StepPaths steps;                      // the paths of single steps
  std::vector<NamedSegment> segments;   // of `path`, if one step was asked for; else empty
  std::vector<StepPart> parts;          // of a steady step
  std::vector<WaitRoot> roots;          // of the waits among the parts
  std::vector<ReplayedAct> as_planned;  // a step as the plan expects it; empty: unknown
  BackPressure pressure;
  std::vector<TransferRow> transfers;
  MemoryUse memory;  // of the step of the path, or of a typical one
  SpeedReport speeds;
  ActCost act_cost;
  double busiest_queue = 0;  // the share of the steady steps for which the busiest queue acts
  // devices[rank] is the place of a rank, as "stage 0, dp=0, tp=1"; empty if the trace does not
  // say.
  std::map<RankId, std::string> devices;
  // All of the trace, most first. Neither the path of several steps nor any figure below has them.
  std::vector<OutlierStep> outliers;
  double median_step_ns = 0;        // over all steps but the first
  double recorded_step_ns = 0;      // mean over all steps but the first and the outliers
  double replayed_step_ns = 0;      // the same of a replay without changes; 0: a standstill
  std::vector<WhatIfRow> what_ifs;  // best first
  // The last steps of a long run, over which changes are replayed (replay.h); 0: all steps.
  int64_t steps_of_changes = 0;
  // Returns the most that more slots can save, as a share of a step. No slots let a queue do its
  // work faster; a replay of few steps may say so, because acts of later steps run ahead in it.
  double most_by_slots() const { return std::max(0.0, 1 - busiest_queue); }
  // Returns the error of the replay, as a share of the recorded time.
  double replay_error() const { return replayed_step_ns / std::max(recorded_step_ns, 1.0) - 1; }
};

// kFailedPrecondition if the trace does not hold the facts that a replay needs (recorded_run.h);
// W0533 for an invalid change, W0534 for a step that is not in the trace.
absl::StatusOr<WhySlow> FindWhySlow(const TraceReader& trace, const WhySlowOptions& options);
// The same of a run that has been read already.
absl::StatusOr<WhySlow> FindWhySlow(const RecordedRun& run, const WhySlowOptions& options);

// A PathLine is one line of the critical path: the work of ranks under one name, or one exchange
// between ranks, in all layers.
struct PathLine {
  double share = 0;  // of the step
  double ns_per_step = 0;
  std::string text;  // "waits for `move layers.1.y` under way, rank 0 to 2"
};

// Returns the lines of a path, most first.
std::vector<PathLine> PathLines(const CriticalPath& path);

// Returns at most `rows_max` rows in each table; equal rows of many layers are one.
std::string ToText(const WhySlow& why, size_t rows_max);

// Returns the change to make first, in a sentence or two. Only changes that save a few per cent of
// a typical step count; without any, the sentence says so. Empty if no tried change gains anything.
std::string Advice(const WhySlow& why);

// A SlotGain says what more slots gain, as shares of a step.
struct SlotGain {
  double most = 0;                   // by any number of slots in all registers
  const WhatIfRow* named = nullptr;  // of named registers, if these gain most of it; else null
};
SlotGain FindSlotGain(const WhySlow& why);

// Returns the name of the register on an edge without its ranks, such as "move layers.1.y".
std::string EdgeName(const PathEdge& edge);

// Returns an empty text unless all devices whose CPU time is known lack a core. If all lack a core,
// the job is not the first thing to change.
std::string AdviceOnCores(const SpeedReport& speeds);

}  // namespace weir::trace
