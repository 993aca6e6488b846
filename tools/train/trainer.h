// Trains a job: follows the metrics, evaluates on the held-out data, and writes weights, metrics
// and trace. The JobRunner knows where the ranks are.
//
//   open a runner -> { run a few steps, report, evaluate?, checkpoint? }* -> save
//
// Steps run in short bursts, so that an interrupt ends at a step and nothing is lost. A run that is
// interrupted before its first step writes nothing. A failed write costs no step: if metrics or a
// checkpoint on the way cannot be written, the trainer warns and tries again, and at the end it
// writes everything else before it returns the error. Files hold finite values only, unless
// on_nonfinite is kContinue. Thread rule: one thread; `interrupted` may be set from a signal
// handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cost/cost_model.h"
#include "proto/job.pb.h"
#include "tools/console/console.h"
#include "tools/live/live_run.h"
#include "tools/train/evaluator.h"
#include "tools/train/job_runner.h"
#include "tools/train/peak_arithmetic.h"
#include "tools/train/progress.h"
#include "tools/train/run_folder.h"
#include "tools/train/straggler_watch.h"
#include "tools/weights/averages.h"

namespace weir::train {

// Opens the runner of a job.
using RunnerFactory = std::function<absl::StatusOr<std::unique_ptr<JobRunner>>(
    const proto::Job& job, const RunnerOptions& options)>;

// A RunRecovery is how a run goes on after it has lost ranks.
struct RunRecovery {
  int64_t step = 0;        // steps done, from which it goes on
  int64_t steps_lost = 0;  // steps that were done, and are done again
  std::string text;        // how the ranks came back, for people
  bool has_step = false;   // false: the run ends without another step
  bool is_growth = false;  // nobody was lost: the mesh has become that of the job again
};

class RunSoFar;  // run_so_far.h

struct TrainOptions {
  RunnerFactory runner = LocalRunner::Open;
  // The costs for which the plans are made; null: the compiler's defaults. The costs change the
  // time of a step, and not the bits of its results.
  const compiler::CostModel* costs = nullptr;
  // The driver and its libraries take so many bytes of the memory of each device, beside the plan;
  // 0: nothing.
  int64_t driver_bytes = 0;
  // Finds the peak arithmetic of the job's devices. Null: it is not known.
  FindPeak find_peak;
  int threads_per_device = 0;  // 0: as the job says; if it says 0, the cores shared evenly
  int processes = 0;           // for the ranks of `runner`; 0: this process holds all
  int hosts = 0;               // for those processes; 0: this machine, which is checked
  std::string job_file;        // the file of the job, which no output may replace; may be empty
  std::string init;            // safetensors of weights to start from, under any map that fits
  std::string resume;          // checkpoint to resume
  std::string save;            // where to write the weights at the end
  weights::Values init_values = weights::Values::kWeights;  // of `init`
  // Where to write weights, optimiser states and the step: one file, or a folder of checkpoints
  // (IsFolderPath in run_folder.h).
  std::string checkpoint;
  // The checkpoints of `checkpoint`, which the run holds over all its attempts; must outlive the
  // run. Null: this attempt is the only one.
  RunFolder* folder = nullptr;
  int64_t checkpoint_every = 0;         // also every `checkpoint_every` steps; 0: not by steps
  double checkpoint_every_seconds = 0;  // also at the first update after so long; 0: not by time
  // In a folder of checkpoints the newest `keep` of the run stay (0: all), those whose step is a
  // multiple of keep_every (0: none), and all of other runs.
  int64_t keep = 0, keep_every = 0;
  int64_t checkpoint_bandwidth = 0;  // bytes that are written in a second beside steps; 0: any
  std::string metrics;               // JSON lines
  std::string tensorboard;           // a folder of event files
  std::string trace;                 // Perfetto
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  // Steps between two comparisons of the ranks' replicas of weights; 0: never.
  int64_t check_replicas = 100;
  // Earlier starts of the run are in it, and this start is added, also if it fails. Null: there are
  // none.
  RunSoFar* so_far = nullptr;
  // Called once everything is loaded, before the first step; may be null.
  std::function<void()> before_steps;
  console::Console* console = nullptr;  // must outlive the run; required
  live::LiveRun* live = nullptr;        // must outlive the run; null: no record is kept
  const std::atomic<bool>* interrupted = nullptr;
  // Called when ranks are lost, from the first step until the last file is written. Returns whether
  // the run brings them back (JobRunner::Recover) and goes on. Null: the run ends.
  std::function<bool(int64_t steps_done)> may_recover;
  // Returns the job with which the run goes on after a may_recover that has returned true: with
  // fewer replicas, because lost processes do not come back. The job stays as it is until the next
  // call. Null, or returns null: the job stays, and lost processes start anew.
  std::function<const proto::Job*()> smaller_job;
  // Called between steps. Returns whether the mesh is to grow, because lost processes can start
  // again: then it grows right after the next update, once a checkpoint that is being written is
  // complete. Null: it never grows.
  std::function<bool()> may_grow;
  // Returns the job with which the run then goes on, which has more replicas; not null if may_grow
  // is not. The job stays as it is until the next call.
  std::function<const proto::Job*()> larger_job;
  // Called after larger_job if the mesh cannot begin to grow. A line has said why, nothing has
  // changed, and the run goes on as before. May be null.
  std::function<void()> growth_refused;
  // Called when a step is done again after that, or when the run ends without another step. Returns
  // the seconds since the failure, or since the growth began. May be null.
  std::function<double(const RunRecovery& recovery)> recovered;
  StragglerWatchOptions stragglers;  // when a rank counts as slow
  // Called when a rank is found to be slow (straggler_watch.h). Returns whether its process is to
  // be replaced (JobRunner::Replace). Null: it is not.
  std::function<bool(RankId rank)> may_replace;
  // The number of requests for a checkpoint (SIGUSR1) that no start of the run has answered. One
  // checkpoint after the next update answers all of them, and the run takes them off the number.
  std::atomic<int>* checkpoints_asked = nullptr;
};

// CheckpointTotals are the costs of the checkpoints in a folder.
struct CheckpointTotals {
  int64_t written = 0;
  int64_t bytes = 0;
  double write_seconds = 0;  // from the copies of the states to the commits
  // The time that steps waited, and for how many checkpoints. The last checkpoint of a run is not
  // among them: no step follows it.
  double stall_seconds = 0;
  int64_t num_stalls = 0;
};

// A TrainResult says how far a run has come, over all starts of its processes (run_so_far.h).
struct TrainResult {
  int64_t steps_done = 0;   // of the run, with the steps before a resume
  int64_t steps_here = 0;   // without those steps
  double seconds_here = 0;  // the time that they took, without evaluations and files
  double first_loss = 0;    // of the first step of this run
  double last_loss = 0;
  std::optional<Evaluation> evaluation;  // the last one
  bool interrupted = false;
  CheckpointTotals checkpoints;
  // Outputs that lack something, though the run has done all else, as "--metrics m.jsonl".
  std::vector<std::string> incomplete;
};

// kInvalidArgument: the job is rejected. kNotFound or kDataLoss: an error of an input or an output.
// kOutOfRange (W0962, W0963): values are not finite. Other codes are faults of Weir.
absl::StatusOr<TrainResult> Train(const proto::Job& job, const TrainOptions& options);

// Evaluates the weights in `weights` on the held-out part of the job's data. `job_file` is where a
// map of weights may lie (tools/weights/find_weights.h); empty: nowhere. kInvalidArgument: nothing
// is held out, or an error of weights::OpenValues.
absl::StatusOr<Evaluation> EvaluateWeights(const proto::Job& job, const std::string& weights,
                                           int threads_per_device, const std::string& job_file = "",
                                           weights::Values values = weights::Values::kWeights);

// Returns the name of the metric that the job minimises.
std::string LossName(const proto::Job& job);

// Returns "held-out loss 1.9312, 2.7860 bits per byte (87 batches)", or "held-out loss of the
// averages 1.9312 (87 batches)". A mean that is not a number is "undefined", and the text then says
// in how many batches and why.
std::string EvaluationText(const proto::Job& job, const Evaluation& evaluation);

// Returns "300 steps took 14.2s, mean 2.1k samples/s" of the steps of the run, without those before
// a resume; empty if there are none.
std::string SpeedText(const proto::Job& job, const TrainResult& result);

// Returns bits per byte if the job's data is text, because a token is then a byte, and if the loss
// is a number.
std::optional<double> BitsPerByte(const proto::Job& job, const Evaluation& evaluation);

}  // namespace weir::train
