#include "tools/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/check_training.h"
#include "runtime/base/schedule.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/train/job_data.h"
#include "tools/train/session_states.h"
#include "tools/train/straggler_watch.h"

namespace weir {
namespace {

constexpr double kBurstSeconds = 0.2;
constexpr int64_t kBurstMax = 64;
constexpr char kStepKey[] = "step";
constexpr char kOptimizerStepKey[] = "optimizer_step";

std::string LossName(const Job& job) { return job.graph().loss().empty() ? "loss" : job.graph().loss(); }

LearningRateSchedule ScheduleOf(const Job& job) {
  const Schedule& from = job.training().schedule();
  LearningRateSchedule schedule;
  schedule.learning_rate = from.learning_rate();
  schedule.warmup_steps = from.warmup_steps();
  schedule.decay = from.decay() == Schedule::COSINE ? "cosine" : from.decay() == Schedule::LINEAR ? "linear" : "constant";
  const int64_t all = compiler::OptimizerSteps(job.training(), compiler::UpdateRateOf(job.training()));
  schedule.decay_steps = from.decay_steps() > 0 ? from.decay_steps() : all;
  schedule.min_learning_rate = from.min_learning_rate();
  return schedule;
}

double ValueOf(const StepMetrics& metrics, const std::string& name) {
  auto it = metrics.find(name);
  return it == metrics.end() ? std::nan("") : it->second;
}

class Trainer {
 public:
  Trainer(const Job& job, const TrainOptions& options)
      : job_(job),
        options_(options),
        items_(ItemsOf(job)),
        progress_(items_.name, &clock_, options.console),
        schedule_(ScheduleOf(job)),
        updates_(compiler::UpdateRateOf(job.training())) {}

  absl::StatusOr<TrainResult> Run() {
    WEIR_RETURN_IF_ERROR(Open());
    absl::Status status = RunAllSteps();
    progress_.Finish();
    if (!status.ok()) {
      if (!options_.trace.empty()) LeaveTrace();
      return status;
    }
    WEIR_RETURN_IF_ERROR(WriteResults());
    return result_;
  }

 private:
  absl::Status Open() {
    if (!options_.init.empty() && !options_.resume.empty()) {
      return Rejected({"W0074", "--init and --resume", "one of them", "both", "--resume alone: a checkpoint holds the weights"});
    }
    std::unique_ptr<SafetensorsReader> checkpoint, init;
    if (!options_.resume.empty()) WEIR_RETURN_IF_ERROR(OpenCheckpoint(&checkpoint));
    if (!options_.init.empty()) {
      WEIR_ASSIGN_OR_RETURN(init, SafetensorsReader::Open(options_.init));
    }
    WEIR_ASSIGN_OR_RETURN(runner_, options_.runner(job_, options_.threads_per_device, result_.steps_done));
    if (init != nullptr) WEIR_RETURN_IF_ERROR(Load(*init, StateSet::kWeights));
    if (checkpoint != nullptr) WEIR_RETURN_IF_ERROR(Load(*checkpoint, StateSet::kAll));
    if (!options_.metrics.empty()) {
      metrics_file_.open(options_.metrics, result_.steps_done > 0 ? std::ios::app : std::ios::trunc);
      if (!metrics_file_) {
        return Missing({"W0075", "--metrics " + options_.metrics, "a file that can be written", "none",
                        "check that the folder exists"});
      }
    }
    SayWhatRuns();
    return absl::OkStatus();
  }

  // Reads the number of steps done from the checkpoint.
  absl::Status OpenCheckpoint(std::unique_ptr<SafetensorsReader>* checkpoint) {
    WEIR_ASSIGN_OR_RETURN(*checkpoint, SafetensorsReader::Open(options_.resume));
    auto it = (*checkpoint)->metadata().find(kStepKey);
    int64_t step = -1;
    if (it == (*checkpoint)->metadata().end() || !absl::SimpleAtoi(it->second, &step) || step < 0) {
      return Rejected({"W0076", options_.resume, "a checkpoint, whose metadata has the step",
                       it == (*checkpoint)->metadata().end() ? "none" : "\"" + it->second + "\"",
                       "files written by --save are for --init"});
    }
    result_.steps_done = step;
    return CheckUpdatesOf((*checkpoint)->metadata());
  }

  // Whether the run can go on after `steps_done` steps and count updates as the run before did.
  absl::Status CheckUpdatesOf(const std::map<std::string, std::string>& metadata) const {
    const int64_t step = result_.steps_done;
    auto it = metadata.find(kOptimizerStepKey);
    int64_t found = step;  // all that could be, before checkpoints told
    if (it != metadata.end() && !absl::SimpleAtoi(it->second, &found)) found = -1;
    if (updates_.IsBetweenUpdates(step) && updates_.OptimizerStep(step) == found) return absl::OkStatus();
    return Rejected({"W0548", options_.resume,
                     absl::StrCat("a checkpoint of a run with training.update_every ", updates_.every, ", update_phase ", updates_.phase, " and gradient_delay ",
                                  updates_.delay, ": after step ", step, " with ", std::max<int64_t>(0, updates_.OptimizerStep(step)),
                                  updates_.IsBetweenUpdates(step) ? "" : " and more", " steps of the optimiser"),
                     absl::StrCat(std::max<int64_t>(0, found), " steps of the optimiser"),
                     "go on with the numbers that the run had, or start a new one with --init from its weights"});
  }

  absl::Status Load(const SafetensorsReader& file, StateSet set) {
    WEIR_RETURN_IF_ERROR(CheckStates(file, set, runner_->facts().states));
    return runner_->Load(file.path(), set);
  }

  void SayWhatRuns() {
    const RunnerFacts& facts = runner_->facts();
    int64_t parameters = 0;
    for (const auto& [name, type] : facts.states) {
      if (BelongsTo(name, StateSet::kWeights)) parameters += NumElements(type.shape);
    }
    progress_.Say(facts.data);
    progress_.Say(absl::StrFormat("%s: %s parameters, %d device%s%s%s, %d thread%s each, %s per device",
                                  job_.name(), ShortCount(static_cast<double>(parameters)), facts.num_ranks,
                                  facts.num_ranks == 1 ? "" : "s", facts.mesh.empty() ? "" : " (" + facts.mesh + ")",
                                  facts.where.empty() ? "" : " " + facts.where, facts.threads_per_device,
                                  facts.threads_per_device == 1 ? "" : "s",
                                  BytesText(static_cast<double>(facts.bytes_per_device))));
    SayWhatUpdates();
    if (result_.steps_done > 0) progress_.Say(absl::StrCat("going on after step ", result_.steps_done));
  }

  void SayWhatUpdates() {
    if (updates_.delay > 0) {
      progress_.Say(absl::StrCat("gradients are ", updates_.delay, updates_.delay == 1 ? " update" : " updates", " old; the first ",
                                 updates_.delay == 1 ? "update leaves" : absl::StrCat(updates_.delay, " updates leave"), " the weights as they are"));
    }
    if (updates_.every == 1) return;
    const int64_t steps = job_.training().steps(), rest = steps - updates_.RoundDown(steps);
    progress_.Say(absl::StrCat("weights are updated every ", updates_.every, " steps, first in step ", updates_.phase + 1));
    if (rest > 0) {
      progress_.Say(absl::StrCat("WARNING: the last update is in step ", steps - rest, " of ", steps, ": the gradients of the ",
                                 rest == 1 ? "step" : absl::StrCat(rest, " steps"), " after it change nothing"));
    }
  }

  bool evaluates() const { return runner_->facts().evaluation_batches > 0; }
  bool Interrupted() const { return options_.interrupted != nullptr && options_.interrupted->load(); }

  absl::Status RunAllSteps() {
    int64_t steps = job_.training().steps();
    int64_t burst = 1;
    started_at_ = result_.steps_done;
    // Resumed after the last update: the checkpoint is that of the beginning.
    if (started_at_ < steps && started_at_ == updates_.RoundDown(steps)) WEIR_RETURN_IF_ERROR(WriteCheckpoint());
    while (result_.steps_done < steps && !(Interrupted() && MayEnd())) {
      int64_t before = clock_.NowNs(), count = std::min(burst, UntilStop(steps));
      const int64_t checkpoint_at = NextCheckpoint(steps);
      WEIR_ASSIGN_OR_RETURN(reported_, runner_->RunSteps(count));
      double seconds = static_cast<double>(clock_.NowNs() - before) * 1e-9;
      burst = std::clamp<int64_t>(std::llround(kBurstSeconds * static_cast<double>(count) / std::max(seconds, 1e-9)), 1, kBurstMax);
      result_.steps_done += count;
      step_seconds_ = std::max(seconds / static_cast<double>(count), 1e-9);
      running_seconds_ += seconds;
      for (const std::string& line : stragglers_.Look(runner_->Work(), seconds)) progress_.Say("WARNING: " + line);
      WEIR_RETURN_IF_ERROR(AfterBurst(steps, checkpoint_at));
    }
    result_.interrupted = result_.steps_done < steps;
    if (result_.interrupted) progress_.Say(absl::StrCat("interrupted after step ", result_.steps_done, " of ", steps));
    return absl::OkStatus();
  }

  // What steps have gathered since the last update is not in a checkpoint, so one is written right after an update: at
  // the end of the run the last there is; if interrupted, the next.
  int64_t NextCheckpoint(int64_t steps) const {
    const int64_t last = updates_.RoundDown(steps), every = options_.checkpoint_every, done = result_.steps_done;
    if (every == 0 || options_.checkpoint.empty()) return last;
    const int64_t due = updates_.RoundUp(done / every * every);
    return std::min(last, due > done ? due : updates_.RoundUp((done / every + 1) * every));
  }
  bool MayEnd() const {
    return options_.checkpoint.empty() || updates_.IsBetweenUpdates(result_.steps_done) ||
           updates_.RoundUp(result_.steps_done) > job_.training().steps();
  }

  // Steps until something is due between steps.
  int64_t UntilStop(int64_t steps) const {
    const int64_t done = result_.steps_done, eval_every = evaluates() ? job_.training().eval_every() : 0;
    int64_t until = steps - done;
    if (eval_every > 0) until = std::min(until, eval_every - done % eval_every);
    if (options_.checkpoint.empty()) return until;
    if (NextCheckpoint(steps) > done) until = std::min(until, NextCheckpoint(steps) - done);
    if (Interrupted() && !MayEnd()) until = std::min(until, updates_.RoundUp(done) - done);
    return until;
  }

  absl::Status AfterBurst(int64_t steps, int64_t checkpoint_at) {
    int64_t done = result_.steps_done;
    int64_t eval_every = job_.training().eval_every();
    bool evaluate = evaluates() && (done == steps || (eval_every > 0 && done % eval_every == 0));
    if (evaluate) WEIR_RETURN_IF_ERROR(Evaluate());
    for (const auto& [step, metrics] : reported_) {
      WEIR_RETURN_IF_ERROR(ReportStep(step, steps, metrics, evaluate && step + 1 == done));
    }
    if (evaluate) progress_.Say(absl::StrCat("step ", done, ": ", EvaluationText(job_, *result_.evaluation)));
    if (done == checkpoint_at && done < steps) return WriteCheckpoint();
    return absl::OkStatus();
  }

  absl::Status Evaluate() {
    WEIR_ASSIGN_OR_RETURN(auto batches, runner_->Evaluate());
    result_.evaluation = MeanOf(batches);
    if (result_.evaluation->batches != runner_->facts().evaluation_batches) {
      return absl::InternalError(absl::StrCat("W0073: expected metrics of ", runner_->facts().evaluation_batches,
                                              " batches; found ", result_.evaluation->batches, "."));
    }
    return absl::OkStatus();
  }

  absl::Status ReportStep(int64_t step, int64_t steps, const StepMetrics& metrics, bool evaluated) {
    double loss = ValueOf(metrics, LossName(job_));
    if (metrics.count("grad_norm") > 0) gradient_norm_ = ValueOf(metrics, "grad_norm");
    double rate = static_cast<double>(items_.count) / step_seconds_;
    if (step == started_at_) result_.first_loss = loss;
    result_.last_loss = loss;
    if (!std::isfinite(loss) && !warned_) {
      warned_ = true;
      progress_.Say(absl::StrCat("WARNING: the loss is ", std::isnan(loss) ? "not a number" : "infinite", " at step ", step + 1,
                                 "; weights are likely lost. Try a lower training.schedule.learning_rate, warm-up, "
                                 "or training.optimizer.clip_norm=1."));
    }
    ProgressStep shown;
    shown.step = step + 1;
    shown.steps = steps;
    shown.loss = loss;
    shown.gradient_norm = gradient_norm_;
    shown.learning_rate = LearningRate(step);
    shown.items_per_second = rate;
    double mean = running_seconds_ / static_cast<double>(result_.steps_done - started_at_);
    shown.seconds_left = mean * static_cast<double>(steps - step - 1);
    progress_.Show(shown);
    return WriteMetrics(step, metrics, rate, evaluated);
  }

  // Of the update that `step` makes or gathers gradients for.
  double LearningRate(int64_t step) const { return schedule_.At(std::max<int64_t>(0, updates_.OptimizerStep(step))); }

  absl::Status WriteMetrics(int64_t step, const StepMetrics& metrics, double rate, bool evaluated) {
    if (!metrics_file_.is_open()) return absl::OkStatus();
    MetricLine line(step + 1);
    line.Add("loss", ValueOf(metrics, LossName(job_)));
    if (metrics.count("grad_norm") > 0) line.Add("grad_norm", ValueOf(metrics, "grad_norm"));
    line.Add("lr", LearningRate(step));
    line.Add(absl::StrCat(items_.name, "_per_second"), rate);
    line.Add("step_seconds", step_seconds_);
    for (const auto& [name, value] : metrics) {
      if (name != LossName(job_) && name != "grad_norm") line.Add(name, value);
    }
    if (evaluated) {
      for (const auto& [name, value] : result_.evaluation->means) {
        line.Add(absl::StrCat("eval_", name == LossName(job_) ? "loss" : name), value);
      }
      if (auto bits = BitsPerByte(job_, *result_.evaluation)) line.Add("eval_bits_per_byte", *bits);
    }
    metrics_file_ << line.Text() << "\n" << std::flush;
    if (metrics_file_) return absl::OkStatus();
    return Missing({"W0075", "--metrics " + options_.metrics, "to write the file", "a write that failed", "is the disk full?"});
  }

  absl::Status WriteCheckpoint() {
    if (options_.checkpoint.empty()) return absl::OkStatus();
    checkpoint_step_ = result_.steps_done;
    return runner_->Save(StateSet::kAll,
                         {{"format", "weir"},
                          {"job", job_.name()},
                          {kStepKey, absl::StrCat(result_.steps_done)},
                          {kOptimizerStepKey, absl::StrCat(updates_.OptimizerStep(result_.steps_done))}},
                         options_.checkpoint);
  }

  // Of a job that failed, for whoever asks why.
  void LeaveTrace() {
    const absl::Status written = runner_->WriteTrace(options_.trace);
    if (written.ok()) progress_.Say("trace of the failed job written to " + options_.trace);
    if (!written.ok() && !absl::IsFailedPrecondition(written)) progress_.Say(absl::StrCat("no trace: ", written.message()));
  }

  absl::Status WriteResults() {
    if (updates_.IsBetweenUpdates(result_.steps_done)) WEIR_RETURN_IF_ERROR(WriteCheckpoint());
    if (checkpoint_step_ >= 0) {
      progress_.Say(absl::StrCat("checkpoint written to ", options_.checkpoint,
                                 checkpoint_step_ == result_.steps_done ? "" : absl::StrCat(", as of step ", checkpoint_step_, ", the last that updates")));
    }
    if (!options_.save.empty()) {
      WEIR_RETURN_IF_ERROR(runner_->Save(StateSet::kWeights, {{"format", "weir"}, {"job", job_.name()}}, options_.save));
      progress_.Say("weights written to " + options_.save);
    }
    if (!options_.trace.empty()) {
      WEIR_RETURN_IF_ERROR(runner_->WriteTrace(options_.trace));
      progress_.Say("trace written to " + options_.trace + " (weir trace report " + options_.trace + ", or ui.perfetto.dev)");
    }
    return absl::OkStatus();
  }

  const Job& job_;
  const TrainOptions& options_;
  MonotonicClock clock_;
  const StepItems items_;
  Progress progress_;
  LearningRateSchedule schedule_;
  UpdateRate updates_;  // of any sense once a runner has been opened
  std::unique_ptr<JobRunner> runner_;
  std::map<int64_t, StepMetrics> reported_;  // of the last burst
  std::ofstream metrics_file_;
  std::optional<double> gradient_norm_;  // the last reported
  int64_t checkpoint_step_ = -1;         // of the last checkpoint written here
  TrainResult result_;
  int64_t started_at_ = 0;  // steps done before
  double step_seconds_ = 0;  // mean over the last burst
  double running_seconds_ = 0;  // of all bursts, without evaluations
  bool warned_ = false;
  StragglerWatch stragglers_;
};

}  // namespace

absl::StatusOr<TrainResult> Train(const Job& job, const TrainOptions& options) { return Trainer(job, options).Run(); }

absl::StatusOr<Evaluation> EvaluateWeights(const Job& job, const std::string& weights, int threads_per_device) {
  WEIR_ASSIGN_OR_RETURN(auto file, SafetensorsReader::Open(weights));
  WEIR_ASSIGN_OR_RETURN(auto dataset, OpenJobData(job));
  JobSessionOptions session;
  session.threads_per_device = threads_per_device;
  WEIR_ASSIGN_OR_RETURN(auto evaluator, Evaluator::Create(job, dataset.get(), session));
  if (evaluator == nullptr) {
    return Rejected({"W0077", "data", "something held out to evaluate on", "nothing",
                     "data { text { held_out: 0.1 } }, or test_images and test_labels"});
  }
  WEIR_RETURN_IF_ERROR(LoadStates(*file, StateSet::kWeights, evaluator->session()));
  WEIR_ASSIGN_OR_RETURN(auto batches, evaluator->Run());
  return MeanOf(batches);
}

std::optional<double> BitsPerByte(const Job& job, const Evaluation& evaluation) {
  auto it = evaluation.means.find(LossName(job));
  if (!job.data().has_text() || it == evaluation.means.end()) return std::nullopt;
  return it->second / std::log(2.0);
}

std::string EvaluationText(const Job& job, const Evaluation& evaluation) {
  std::string text;
  for (const auto& [name, value] : evaluation.means) {
    if (name == LossName(job)) text = absl::StrFormat("held-out loss %.4f", value);
  }
  for (const auto& [name, value] : evaluation.means) {
    if (name != LossName(job)) absl::StrAppend(&text, absl::StrFormat(", %s %.4f", name, value));
  }
  if (auto bits = BitsPerByte(job, evaluation)) absl::StrAppend(&text, absl::StrFormat(", %.4f bits per byte", *bits));
  return absl::StrCat(text, " (", evaluation.batches, evaluation.batches == 1 ? " batch)" : " batches)");
}

}  // namespace weir
