// Reports the content of a trace file in numbers and sentences: the busy share of each device, its
// waits and their holders, the time of a step, the pipeline's bubble beside the formula, and the
// communication that no work hid. Works on the file alone, of one process or of several, one after
// another. A device whose queues work beside each other has a row per queue.
//
// The first step fills pipelines and caches, so figures are of the steady window: the steps that
// are whole in the trace (step_times.h) but the first, if there is more than one. Rests between
// runs of the session belong to no step. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/ids.h"
#include "tools/trace/rank_classes.h"

namespace weir::trace {

struct DeviceReport {
  RankId rank;
  QueueId queue;     // of the device; none: it does one act at a time
  std::string name;  // "rank 0 · stage 0", "rank 0 · stage 0, queue 1"
  // Shares of the window; they sum to 1.
  double busy = 0;
  double waits_for_input = 0;
  double waits_for_credit = 0;
  double between_acts = 0;  // ready, but not started: the engine, the scheduler, short gaps
  // The share of the time in measured acts for which the rank's thread had a core. Acts that are
  // long enough are measured. Negative: unknown.
  double core_share = -1;
  int64_t acts_dropped = 0;  // older than what the ring could keep
};

// A WaitReport sums all waits of one rank for one register.
struct WaitReport {
  RankId rank;
  enum class Kind : uint8_t { kInput, kCredit } kind = Kind::kInput;
  std::string register_name;
  std::string holder;  // "actor 'x' on rank 1"
  double total_ns = 0;
  int64_t times = 0;
  double share = 0;  // of the window
};

// An ExposedReport is communication that no work hid: devices waited for tokens of one boxing from
// other ranks, or for the other ranks of one collective, and had no other work, on any of their
// queues. Not all of the time is the transport's: the sender may have been late.
struct ExposedReport {
  std::string boxing;      // "reduce-scatter x", "move y": as its registers, without ranks
  double ns_per_step = 0;  // mean over all devices
  double share = 0;        // of the step
  // The share of that time after the token had been sent; before, the sender was busy or waited
  // too.
  double share_sent = 0;
  int64_t times = 0;  // waits of all devices in the window
};

struct TraceReport {
  std::string plan_id;
  // The ranks of the job; the trace of a failed job may lack some. 0: the trace does not say.
  int num_ranks = 0;
  // The ranks that the trace holds, and whom they stand for, ascending. Means over devices are over
  // the ranks that the trace holds.
  std::vector<RankClass> classes;
  int64_t num_stages = 1;
  int64_t stages_in_a_row = 1;  // on the longest way of a micro-batch; in a chain, all stages
  int64_t virtual_stages = 1;   // parts on each stage
  int64_t micro_batches = 1;
  int64_t first_step = 0;  // index, of the steady window
  int64_t last_step = 0;
  std::optional<int64_t> left_out_step;  // the whole step before the window; none: there is none
  int64_t window_ns = 0;                 // the sum of these steps
  double step_ns = 0;                    // mean over the steady window
  std::vector<DeviceReport> devices;     // by rank and queue
  std::vector<WaitReport> waits;         // worst first
  std::vector<ExposedReport> exposed;    // worst first
  // 1 - the share of the time in which a device works on any queue, mean over devices.
  double bubble = 0;
  // The formula of the schedule gives the bubble of even stages without waits. 0 and empty: there
  // is no formula.
  double bubble_formula = 0;
  std::string bubble_formula_text;  // "(p-1)/(m+p-1)"
  std::string schedule;             // of the pipeline: "1F1B"; empty: unknown
  double pipeline_bubble = 0;       // measured, see pipeline_bubble.h
  double predicted_bubble = 0;      // by the compiler; 0: unknown

  // Returns the number of the ranks that the trace holds.
  int64_t NumRanksHere() const { return static_cast<int64_t>(classes.size()); }
  // Returns whether the trace holds a rank that stands for others.
  bool by_symmetry() const;
};

class TraceReader;
TraceReport MakeTraceReport(const TraceReader& reader);

// Reports on the bytes of a file. kDataLoss (W0531) if `file` is no trace of Weir. Never crashes on
// other bytes.
absl::StatusOr<TraceReport> ReadTraceReport(absl::string_view file);

// Return the text of a report in two parts: devices and bubble; then boxings and waits, at most
// `waits_max` rows of each, where equal rows of many layers are one.
std::string OverviewText(const TraceReport& report);
std::string WaitsText(const TraceReport& report, size_t waits_max);
std::string ToText(const TraceReport& report, size_t waits_max = 5);  // both

}  // namespace weir::trace
