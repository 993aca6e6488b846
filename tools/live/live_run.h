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
//   doing               {what, done, of}: the part of the preparation that goes on, such as a pass
//                       of the compiler, and how many of such parts are done; while starting only
//   resident_bytes      memory of this process that the system keeps in RAM
//   part_names          the parts of a step by cause, in the order of every list `parts`
//   facts               {steps, item, items_per_step, parameters, mesh, ranks, where,
//                       threads_per_rank, bytes_per_rank, bytes_of_rank, flops_per_step,
//                       peak_flops, peak_from}; absent while starting. bytes_of_rank: the planned
//                       memory of each rank; peak_flops: arithmetic of all devices in a second,
//                       null if not known; peak_from: where that is from, or what would tell it
//   step                of the last step reported: {step, loss, grad_norm, lr, items_per_second,
//                       step_seconds, seconds_left, mfu, parts}; numbers that are not finite or not
//                       known: null. parts: shares of the step, mean of all ranks; may be absent
//   stepped_unix_ms     when it was reported
//   evaluation          {step, text}; the last one
//   work                [{rank, stage, busy, parts}]: the share of the last steps that the rank
//   spent
//                       in acts, and the shares of all parts
//   restart             {count, after_step, report, earlier_reports}; the last one, absent before
//                       the first. count: of the run so far; report: of the failure behind it;
//                       earlier_reports: of failures before it since the last step, in their order
//   recovery            {count, who, after_step, to_step, seconds, report, earlier_reports}; the
//                       last one, absent before the first. who: the ranks whose processes were
//                       lost, in words; to_step: the steps done with which the run went on;
//                       seconds: from the first failure until a step was done again
//   growth              {count, after_step, seconds, how}; the last one, absent before the first.
//                       after_step: the steps done when the mesh grew; seconds: that the steps have
//                       waited; how: which processes came back, and what gave them their states
//   epoch               of the processes, from 1 on: each recovery in place, each growth and each
//                       new start begins one; absent where all ranks are in this process
//   workers             [{ranks, host, pid, state, silent_ms, acts, resident_bytes, activity}]
//   warnings, said      how many lines were warnings or errors; the last line
//   end                 {code, report}, once the run has ended; the report of a failure
//
// Lines of the history: {"at_ms": since the start, and one of "phase", "step", "evaluation",
// "restart", "recovery", "growth", "said", "end"}. Steps are thinned as the run grows
// (kStepsPerRun), so that the history of a month takes a few MiB.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

// The parts of a step by cause, in the order of a stack: those of the report of a trace
// (tools/trace/step_parts.h), except that waits for other ranks are one part.
inline constexpr std::array<const char*, 7> kStepParts = {"compute",
                                                          "packing and combining",
                                                          "reading data",
                                                          "waits for other ranks",
                                                          "waits for input of the own rank",
                                                          "waits for free slots",
                                                          "between acts"};

enum class Phase : uint8_t { kStarting, kTraining, kEvaluating, kSaving, kEnded };

// A part of what comes before the first step.
struct Doing {
  std::string what;  // "pass solve-rhythm of the training plan, 14 functions"
  int64_t done = 0;  // of the parts of this kind, and
  int64_t of = 0;    // how many there are; 0: it has no parts
};
using TellDoing = std::function<void(const Doing& doing)>;  // called on any thread

// Returns "pass solve-rhythm of the training plan, 14 functions: 12 of 13 done".
std::string TextOf(const Doing& doing);

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
  int64_t bytes_per_rank = 0;          // of the rank that needs most
  std::vector<int64_t> bytes_of_rank;  // as planned, by rank
  double flops_per_step = 0;  // of the model: three times those of the forward pass; 0: not known
  double peak_flops = 0;      // of all devices in a second; 0: not known
  std::string peak_from;      // where the peak is from, or what would tell it
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
  std::optional<double> mfu;           // model flops of the step over the peak's; none: not known
  std::vector<double> parts;           // shares of the step by kStepParts; empty: not known
};

// The shares of the last steps that a rank spent in acts, and in each of kStepParts.
struct RankBusy {
  RankId rank;
  int stage = 0;
  double busy = 0;
  std::vector<double> parts;
};

struct LiveWorker {
  std::vector<RankId> ranks;
  std::string host;  // empty: this machine
  int64_t pid = 0;
  enum class State : uint8_t { kConnecting, kConnected, kEnded } state = State::kConnecting;
  int64_t silent_ms = 0;  // since its last heartbeat
  int64_t acts = 0;       // of all its ranks
  std::string activity;
  int64_t resident_bytes = 0;  // 0: not known
};

// A LiveRestart is a new start of all processes of the run after a failure.
struct LiveRestart {
  int64_t count = 0;                         // of the run so far, with this one
  int64_t after_step = 0;                    // steps that were done when the run failed
  std::string report;                        // of the failure
  std::vector<std::string> earlier_reports;  // of failures since the last step before that one
};

// A LiveRecovery is a return of lost processes while the others live on.
struct LiveRecovery {
  int64_t count = 0;                         // of the run so far, with this one
  std::string who;                           // the lost: "rank 1 and rank 3"
  int64_t after_step = 0;                    // steps that were done when the processes were lost
  int64_t to_step = 0;                       // steps done with which the run went on
  double seconds = 0;                        // from the first failure until a step was done again
  std::string report;                        // of the last failure
  std::vector<std::string> earlier_reports;  // of failures since the last step before that one
};

// A LiveGrowth is a return of lost processes to a job whose mesh had become smaller.
struct LiveGrowth {
  int64_t count = 0;       // of the run so far, with this one
  int64_t after_step = 0;  // steps that were done
  double seconds = 0;      // from then until a step was done on the larger mesh
  std::string how;         // in words
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
  // Says what goes on before the first step. Entering another phase ends it.
  void SetDoing(const Doing& doing);
  // Call once per burst of steps, with the last of them: each call writes the state.
  void ReportStep(const LiveStep& step);
  void ReportEvaluation(int64_t step, const std::string& text);
  // Call before the next start. The run then starts again.
  void ReportRestart(const LiveRestart& restart);
  // Call when processes are lost and the others live on: the run recovers until ReportRecovery.
  void BeginRecovery(const std::string& who);
  void ReportRecovery(const LiveRecovery& recovery);
  // Call when the mesh begins to grow: the steps wait until ReportGrowth, or ReportRecovery.
  void BeginGrowth();
  void ReportGrowth(const LiveGrowth& growth);
  void SetWork(const std::vector<RankBusy>& work);
  // Returns whether the workers have not been set for a second.
  bool WantsWorkers() const;
  // `epoch`: in which the workers are.
  void SetWorkers(const std::vector<LiveWorker>& workers, int64_t epoch);
  // Records a line that a person was shown.
  void Say(absl::string_view line);
  // Call last. `report`: why the run failed; may be empty.
  void End(int code, absl::string_view report);

 private:
  class Record;
  std::unique_ptr<Record> record_;
};

}  // namespace weir::live
