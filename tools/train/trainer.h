// Trains a job: follows the metrics, evaluates on what is held out, and writes weights,
// metrics and trace. Where the ranks are is the JobRunner's business.
//
//   open a runner -> { run a few steps, report, evaluate?, checkpoint? }* -> save
//
// Steps run in short bursts, so that an interrupt ends at a step and nothing is lost. A run that is
// interrupted before its first step writes nothing. What cannot be written costs no step: metrics
// and checkpoints on the way are warned of and tried again, and at the end everything else is
// written before the error is returned. Files hold finite values only, unless on_nonfinite is
// kContinue. Thread rule: one thread; `interrupted` may be set from a signal handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/console/console.h"
#include "tools/train/evaluator.h"
#include "tools/train/job_runner.h"
#include "tools/train/progress.h"

namespace weir {

// Opens the runner of a job.
using RunnerFactory = std::function<absl::StatusOr<std::unique_ptr<JobRunner>>(
    const Job& job, const RunnerOptions& options)>;

struct TrainOptions {
  RunnerFactory runner = LocalRunner::Open;
  int threads_per_device = 0;  // 0: as the job says; if it says 0, the cores shared evenly
  int processes = 0;           // that `runner` spreads the ranks over; 0: this one holds all
  std::string job_file;    // from which the job was read, which nothing may replace; may be empty
  std::string init;        // safetensors of weights to start from
  std::string resume;      // checkpoint to go on from
  std::string save;        // where to write the weights at the end
  std::string checkpoint;  // where to write weights, optimiser states and the step
  int64_t checkpoint_every = 0;  // also every so many steps
  std::string metrics;           // JSON lines
  std::string trace;             // Perfetto
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  std::function<void()>
      before_steps;            // called once all is loaded, before the first step; may be null
  Console* console = nullptr;  // must outlive the run; required
  const std::atomic<bool>* interrupted = nullptr;
};

struct TrainResult {
  int64_t steps_done = 0;  // of the run, those before a resume included
  int64_t steps_here = 0;  // of those, the ones run here
  double first_loss = 0;   // of the first step run here
  double last_loss = 0;
  std::optional<Evaluation> evaluation;  // the last one
  bool interrupted = false;
};

// Status: kInvalidArgument job rejected, kNotFound or kDataLoss an input or an output, kOutOfRange
// (W0962, W0963) values that are not finite, else our own fault.
absl::StatusOr<TrainResult> Train(const Job& job, const TrainOptions& options);

// Evaluates the weights in `weights` on the held-out part of the job's data.
// kInvalidArgument if nothing is held out.
absl::StatusOr<Evaluation> EvaluateWeights(const Job& job, const std::string& weights,
                                           int threads_per_device);

// "eval loss 1.9312, 2.786 bits per byte (87 batches)"
std::string EvaluationText(const Job& job, const Evaluation& evaluation);

// Bits per byte, if the job's data is text: tokens are bytes.
std::optional<double> BitsPerByte(const Job& job, const Evaluation& evaluation);

}  // namespace weir
