// The record that a run keeps of itself while it goes on, so that other programs of the same user
// can watch the run: `weir top`, `weir view --attach` and the page of `weir train --view`.
//
// The record is two files in memory (memfd_create) of the process that starts the run. A reader
// opens them through /proc/PID/fd (live_reader.h), so the record needs no folder, port or thread,
// leaves nothing behind, and stays readable after the process has ended as long as the reader has
// it open. The system lets only the same user, and the superuser, open them.
//
//   weir-run-now       the present state: u32 bytes, u32 CRC32C of the text, the text, a JSON
//                      object. It is written by one call, and a reader that meets half of it sees
//                      a wrong checksum and reads again.
//   weir-run-history   lines of JSON, only added to
//
// Fields of the state. Times named *_ms are ms since 1970 if they end with unix_ms, else durations:
//
//   version, pid, title, started_unix_ms, updated_unix_ms
//   phase               "starting", "training", "evaluating", "saving" or "ended"
//   phase_since_unix_ms
//   facts               {steps, item, items_per_step, parameters, mesh, ranks, where,
//                       threads_per_rank, bytes_per_rank, flops_per_step}; absent while starting
//   step                of the last step reported: {step, loss, grad_norm, lr, items_per_second,
//                       step_seconds, seconds_left}; numbers that are not finite or not known: null
//   stepped_unix_ms     when it was reported
//   evaluation          {step, text}; the last one
//   work                [{rank, stage, busy}]: the share of the last steps that the rank spent in
//                       acts; it waits, or has nothing to do, in the rest
//   workers             [{ranks, host, pid, state, silent_ms, acts, activity}]
//   warnings, said      how many lines were warnings or errors; the last line
//   end                 {code, report}, once the run has ended; the report of a failure
//
// Lines of the history: {"at_ms": since the start, and one of "phase", "step", "evaluation",
// "said", "end"}. Steps are thinned as the run grows (kStepsPerRun), so that the history of a month
// takes a few MiB.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/clock.h"
#include "runtime/base/ids.h"

namespace weir::live {

inline constexpr int kLiveVersion = 1;
inline constexpr char kNowName[] = "weir-run-now";
inline constexpr char kHistoryName[] = "weir-run-history";
// A run of t seconds records a step at most every t / kStepsPerRun seconds.
inline constexpr int64_t kStepsPerRun = 2000;

enum class Phase : uint8_t { kStarting, kTraining, kEvaluating, kSaving, kEnded };

// Facts that are known before the first step.
struct RunFacts {
  int64_t steps = 0;           // of the whole run
  std::string item;            // "tokens" or "samples"
  int64_t items_per_step = 0;  // items of one step
  int64_t parameters = 0;
  std::string mesh;   // text form; empty: one device
  std::string where;  // "" or "in 2 processes"
  int64_t ranks = 1;
  int threads_per_rank = 1;
  int64_t bytes_per_rank = 0;
  double flops_per_step = 0;  // of the model: three times those of the forward pass; 0: not known
};

struct LiveStep {
  int64_t step = 0;   // steps done
  int64_t steps = 0;  // of the whole run
  double loss = 0;
  std::optional<double> gradient_norm;  // none before the first update
  double learning_rate = 0;
  double items_per_second = 0;
  double step_seconds = 0;
  std::optional<double> seconds_left;  // none: not known yet
};

// The share of the last steps that a rank spent in acts.
struct RankBusy {
  RankId rank;
  int stage = 0;
  double busy = 0;
};

struct LiveWorker {
  std::vector<RankId> ranks;
  std::string host;  // empty: this machine
  int64_t pid = 0;
  enum class State : uint8_t { kConnecting, kConnected, kEnded } state = State::kConnecting;
  int64_t silent_ms = 0;  // since its last heartbeat
  int64_t acts = 0;       // of all its ranks
  std::string activity;
};

class LiveRun {
 public:
  // `clock` must outlive this object. If the system refuses files in memory, the run has no record.
  LiveRun(const std::string& title, const Clock* clock);
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  void SetFacts(const RunFacts& facts);
  void Enter(Phase phase);
  // Call once per burst of steps, with the last of them: each call writes the state.
  void ReportStep(const LiveStep& step);
  void ReportEvaluation(int64_t step, const std::string& text);
  void SetWork(const std::vector<RankBusy>& work);
  // Returns whether the workers have not been set for a second.
  bool WantsWorkers() const;
  void SetWorkers(const std::vector<LiveWorker>& workers);
  // Records a line that a person was shown.
  void Say(absl::string_view line);
  // Call last. `report`: why the run failed; may be empty.
  void End(int code, absl::string_view report);

 private:
  class Record;
  std::unique_ptr<Record> record_;
};

}  // namespace weir::live
