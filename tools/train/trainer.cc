#include "tools/train/trainer.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/cost/model_flops.h"
#include "compiler/job/check_training.h"
#include "runtime/base/problem.h"
#include "runtime/base/schedule.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/pending_file.h"
#include "tools/train/busy_shares.h"
#include "tools/train/checkpoint_header.h"
#include "tools/train/earlier_run.h"
#include "tools/train/event_file.h"
#include "tools/train/job_data.h"
#include "tools/train/job_variant.h"
#include "tools/train/load_start.h"
#include "tools/train/metrics_file.h"
#include "tools/train/nonfinite_steps.h"
#include "tools/train/prepare_training.h"
#include "tools/train/replica_watch.h"
#include "tools/train/run_checkpoints.h"
#include "tools/train/run_facts.h"
#include "tools/train/run_so_far.h"
#include "tools/train/session_states.h"
#include "tools/train/step_shares.h"
#include "tools/train/straggler_watch.h"
#include "tools/train/update_lines.h"
#include "tools/train/warm_pace.h"

namespace weir::train {
namespace {

constexpr double kBurstSeconds = 0.2;
constexpr int64_t kBurstMax = 64;
constexpr char kStoppedSuffix[] = ".stopped";  // of the files that hold the last finite state
constexpr int64_t kStepsInspectedMax = 64;

double ValueOf(const StepMetrics& metrics, const std::string& name) {
  auto it = metrics.find(name);
  return it == metrics.end() ? std::nan("") : it->second;
}

using Mesh = RecoveryOrder::Mesh;

class Trainer {
 public:
  Trainer(const proto::Job& job, const TrainOptions& options)
      : job_(job),
        options_(options),
        run_(options.so_far != nullptr ? *options.so_far : own_run_),
        items_(ItemsOf(job)),
        progress_(items_.name, &clock_, options.console, options.live),
        schedule_(compiler::LearningRatesOf(job.training())),
        updates_(compiler::UpdateRateOf(job.training())),
        nonfinite_(options.on_nonfinite,
                   compiler::LossScaleAdapts(job.training()) ? LossScale::kAdapts
                                                             : LossScale::kNoneOrFixed,
                   LossName(job), &run_),
        own_folder_(options.checkpoint),
        checkpoints_(job_, options_, options.folder != nullptr ? options.folder : &own_folder_,
                     &clock_, &progress_),
        stragglers_(std::in_place, options.stragglers) {}

  absl::StatusOr<TrainResult> Run() {
    WEIR_RETURN_IF_ERROR(Open());
    absl::Status status = BeginSteps();
    if (status.ok()) status = RunToEnd();
    while (RanksAreGone(status) && options_.may_recover != nullptr &&
           options_.may_recover(result_.steps_done)) {
      status = Recover();
      if (status.ok()) status = RunToEnd();
    }
    // Ranks may be lost as late as when files are written, or processes end. A checkpoint on its
    // way is from before that, and may be the last good one.
    checkpoints_.Await();
    result_.checkpoints = checkpoints_.totals();
    run_.Note(result_);
    progress_.Finish();
    if (!status.ok() && !is_ending_ && !options_.trace.empty()) LeaveTrace();
    WEIR_RETURN_IF_ERROR(status);
    return run_.Whole();
  }

 private:
  absl::Status Open() {
    WEIR_ASSIGN_OR_RETURN(const PreparedTraining prepared, PrepareTraining(job_, options_, {}));
    const bool starts_again = options_.folder != nullptr && options_.folder->has_begun();
    WEIR_RETURN_IF_ERROR(checkpoints_.Claim());
    result_.steps_done = prepared.first_step;
    run_.Begin(result_.steps_done);
    if (!options_.metrics.empty()) {
      const auto begin =
          result_.steps_done > 0 ? MetricsFile::Begin::kAfterOthers : MetricsFile::Begin::kAnew;
      if (starts_again) {
        metrics_file_ = MetricsFile::OpenAgain(options_.metrics, begin);
      } else {
        WEIR_ASSIGN_OR_RETURN(metrics_file_, MetricsFile::Open(options_.metrics, begin));
      }
      metrics_file_->GoBackTo(result_.steps_done);
    }
    if (!options_.tensorboard.empty())
      event_file_ = std::make_unique<EventFile>(options_.tensorboard);
    RunnerOptions runner{options_.threads_per_device, result_.steps_done, prepared.sample_offset,
                         options_.on_nonfinite,       &prepared,          nullptr};
    if (live::LiveRun* const live = options_.live; live != nullptr) {
      live->SetDoing({"loading the ranks"});
      runner.tell = [live](const live::Doing& doing) { live->SetDoing(doing); };
    }
    WEIR_ASSIGN_OR_RETURN(runner_, options_.runner(job_, runner));
    checkpoints_.Open(runner_.get(), prepared);
    replicas_.emplace(options_.check_replicas, result_.steps_done);
    WEIR_RETURN_IF_ERROR(LoadStart());
    NoteArithmetic(prepared);
    WEIR_RETURN_IF_ERROR(checkpoints_.Prepare());
    TellFacts(prepared);
    SayWhatRuns();
    for (const std::string& note : prepared.notes) progress_.Say(note);
    for (const std::string& warning : prepared.warnings)
      progress_.Say(absl::StrCat("WARNING: ", warning));
    if (options_.before_steps) options_.before_steps();
    return absl::OkStatus();
  }

  absl::Status LoadStart() {
    WEIR_RETURN_IF_ERROR(checkpoints_.CheckResume());
    return train::LoadStart(options_, checkpoints_.ResumePath(), runner_.get(), clock_, &progress_);
  }

  // Finds what MFU is made of.
  void NoteArithmetic(const PreparedTraining& prepared) {
    model_flops_ = compiler::ModelFlops(*prepared.plans.training);
    if (options_.find_peak == nullptr) return;
    peak_ = options_.find_peak({runner_->facts().num_ranks, runner_->facts().threads_per_device,
                                std::max(1, options_.hosts)});
  }
  // Returns the model flops utilisation of the last burst of steps.
  std::optional<double> Mfu() const {
    if (peak_.flops_per_second <= 0 || model_flops_ <= 0) return std::nullopt;
    return model_flops_ / (step_seconds_ * peak_.flops_per_second);
  }

  void TellFacts(const PreparedTraining& prepared) {
    if (options_.live == nullptr) return;
    live::RunFacts facts = RunFactsOf(runner_->facts(), prepared);
    facts.steps = job_.training().steps();
    facts.item = items_.name;
    facts.items_per_step = items_.count;
    facts.flops_per_step = model_flops_;
    facts.peak_flops = peak_.flops_per_second;
    facts.peak_from = peak_.from;
    options_.live->SetFacts(facts);
  }

  void SayWhatRuns() {
    progress_.Say(runner_->facts().data);
    progress_.Say(WhatRunsText(job_.name(), runner_->facts(), options_.driver_bytes));
    const int64_t steps = job_.training().steps();
    for (const std::string& line : UpdateLines(updates_, steps)) progress_.Say(line);
    if (result_.steps_done > 0 && result_.steps_done < steps)
      progress_.Say(absl::StrCat("going on after step ", result_.steps_done));
    if (result_.steps_done >= steps && !options_.resume.empty()) {
      progress_.Say(absl::StrCat("nothing to train: the checkpoint is of step ", result_.steps_done,
                                 ", and the job has ", Plural(steps, "step"), " in all (--steps)"));
    }
  }

  bool evaluates() const {
    return runner_->facts().evaluation_batches > 0 && evaluation_problem_.ok();
  }
  bool Interrupted() const {
    return options_.interrupted != nullptr && options_.interrupted->load();
  }

  absl::Status BeginSteps() {
    const int64_t steps = job_.training().steps();
    started_at_ = result_.steps_done;
    progress_.Enter(live::Phase::kTraining);
    // The run was resumed after the last update, so the checkpoint is of the start.
    const bool is_due = started_at_ < steps && started_at_ == updates_.RoundDown(steps);
    return is_due ? checkpoints_.WriteOnTheWay(started_at_) : absl::OkStatus();
  }

  // Runs all steps that are left, and writes the files of the end.
  absl::Status RunToEnd() {
    const int64_t steps = job_.training().steps();
    WEIR_RETURN_IF_ERROR(RunStepsTo(steps));
    TellRecovered(/*has_step=*/false);
    result_.interrupted = result_.steps_done < steps && !stops();
    if (result_.interrupted && run_.StepsAt(result_.steps_done) > 0) {
      progress_.SayLast(absl::StrCat("interrupted after step ", result_.steps_done, " of ", steps));
      WEIR_RETURN_IF_ERROR(replicas_->Look(result_.steps_done, true, runner_.get()));
    }
    progress_.Finish();
    is_ending_ = true;
    return stops() ? EndAtNonfinite() : WriteResults();
  }

  absl::Status Recover() {
    is_ending_ = false;
    const proto::Job* const smaller =
        options_.smaller_job == nullptr ? nullptr : options_.smaller_job();
    return BringBack(smaller == nullptr ? Mesh::kStays : Mesh::kShrinks, smaller);
  }

  // Goes on from the last step whose states some rank has in memory, or from files. `changed`: the
  // job, unless the mesh stays. A mesh that cannot begin to grow stays as it is.
  absl::Status BringBack(Mesh mesh, const proto::Job* changed) {
    checkpoints_.Await();  // all ranks may have written their parts of a checkpoint
    const RunFolder::Found found = checkpoints_.FindWritten();
    const std::optional<RunFolder::Written> saved = checkpoints_.OfThisAttempt(found);
    RecoveryOrder order = {saved.has_value() ? saved->step : started_at_, mesh, changed};
    PreparedTraining prepared;
    absl::StatusOr<Recovery> begun = Begin(&order, &prepared);
    if (!begun.ok() && mesh == Mesh::kGrows && !RanksAreGone(begun.status())) {
      SayDoesNotGrow(begun.status());
      if (options_.growth_refused != nullptr) options_.growth_refused();
      progress_.Enter(live::Phase::kTraining);
      return absl::OkStatus();
    }
    WEIR_ASSIGN_OR_RETURN(Recovery recovery, std::move(begun));
    if (changed != nullptr) TakeChangedJob(*changed, prepared);
    if (!recovery.has_states) {
      WEIR_RETURN_IF_ERROR(checkpoints_.GoBackTo(found));
      WEIR_RETURN_IF_ERROR(saved.has_value() ? runner_->Load({saved->path, StateSet::kAll})
                                             : LoadStart());
    }
    // An earlier recovery may have ended before a step was done.
    const int64_t lost =
        result_.steps_done - recovery.step + (recovered_.has_value() ? recovered_->steps_lost : 0);
    recovery.text +=
        GoesOnText(recovery, saved.has_value() ? saved->path : checkpoints_.ResumePath(), lost);
    recovered_ = RunRecovery{recovery.step, std::max<int64_t>(lost, 0), recovery.text, false,
                             mesh == Mesh::kGrows};
    grows_ = false;
    TakeStepsOf(std::move(recovery));
    // These watches know the work of ranks that are gone.
    stragglers_.emplace(options_.stragglers);
    slow_.reset();
    busy_shares_ = BusyShares();
    step_shares_ = StepShares();
    replicas_->GoBackTo(result_.steps_done);
    return replicas_->Look(result_.steps_done, true, runner_.get());
  }

  // Prepares the job of the order, if the order has one, and brings the ranks back.
  absl::StatusOr<Recovery> Begin(RecoveryOrder* order, PreparedTraining* prepared) {
    if (order->job != nullptr) {
      PrepareScope scope;
      scope.files = PrepareScope::Files::kLeave;
      WEIR_ASSIGN_OR_RETURN(*prepared, PrepareTraining(*order->job, options_, scope));
      order->prepared = prepared;
    }
    return runner_->Recover(*order);
  }

  void SayDoesNotGrow(const absl::Status& why) {
    progress_.Say(absl::StrCat("WARNING: the mesh does not grow now: ", why.message()));
  }

  // Lets the mesh grow to that of the job, if that is due and the run rests after an update.
  absl::Status GrowIfDue() {
    const int64_t done = result_.steps_done;
    if (options_.may_grow == nullptr || updates_.delay > 0 || recovered_.has_value())
      return absl::OkStatus();
    grows_ = grows_ || options_.may_grow();
    if (!grows_ || Interrupted() || !updates_.IsBetweenUpdates(done)) return absl::OkStatus();
    grows_ = false;
    checkpoints_.Await();
    const absl::Status ready = runner_->PrepareToGrow();
    if (RanksAreGone(ready)) return ready;
    if (ready.ok()) return BringBack(Mesh::kGrows, options_.larger_job());
    SayDoesNotGrow(ready);
    return absl::OkStatus();
  }

  // Goes on with a job of another number of replicas. Its steps have the same batches, and its
  // states the same names and shapes.
  void TakeChangedJob(const proto::Job& changed, const PreparedTraining& prepared) {
    job_ = changed;
    checkpoints_.TakePlan(prepared);
    NoteArithmetic(prepared);
    TellFacts(prepared);
  }

  // Goes to the step of the recovery. Each step that is done and not done again gets its row, its
  // evaluation and its checkpoint: also the last burst, if ranks were lost before all that, and a
  // burst that failed here although all ranks had done it.
  void TakeStepsOf(Recovery recovery) {
    const int64_t steps = job_.training().steps(), gained = recovery.step - result_.steps_done;
    if (gained != 0 && burst_.has_value()) {
      reported_.erase(reported_.lower_bound(recovery.step), reported_.end());
      if (!burst_->is_reported) ReportBurst(steps, /*evaluated=*/false);
      burst_.reset();
    }
    if (gained > 0) {
      burst_ = Burst{NextCheckpoint(steps)};
      reported_ = std::move(recovery.reported);
      result_.seconds_here += step_seconds_ * static_cast<double>(gained);
    }
    run_.GoBackTo(recovery.step);
    if (metrics_file_ != nullptr) metrics_file_->GoBackTo(recovery.step);
    result_.steps_done = recovery.step;
    result_.steps_here = std::max<int64_t>(result_.steps_here + gained, 0);
  }

  // Runs until `steps` steps are done, the run is interrupted, or values are not finite.
  absl::Status RunStepsTo(int64_t steps) {
    int64_t burst = 1;
    while (true) {
      if (burst_.has_value()) WEIR_RETURN_IF_ERROR(EndBurst(steps));
      if (result_.steps_done >= steps || (Interrupted() && MayEnd()) || stops())
        return absl::OkStatus();
      if (slow_.has_value() && updates_.IsBetweenUpdates(result_.steps_done))
        return runner_->Replace(slow_->rank, slow_->evidence);
      WEIR_RETURN_IF_ERROR(checkpoints_.Look());
      WEIR_RETURN_IF_ERROR(AnswerCheckpointRequest());
      WEIR_RETURN_IF_ERROR(WriteCheckpointDueByTime());
      WEIR_RETURN_IF_ERROR(GrowIfDue());
      int64_t before = clock_.NowNs(), count = std::min(burst, UntilStop(steps));
      const int64_t checkpoint_at = NextCheckpoint(steps);
      WEIR_ASSIGN_OR_RETURN(reported_, runner_->RunSteps(count));
      burst_ = Burst{checkpoint_at};
      double seconds = static_cast<double>(clock_.NowNs() - before) * 1e-9;
      burst = std::clamp<int64_t>(
          std::llround(kBurstSeconds * static_cast<double>(count) / std::max(seconds, 1e-9)), 1,
          kBurstMax);
      result_.steps_done += count;
      result_.steps_here += count;
      step_seconds_ = std::max(seconds / static_cast<double>(count), 1e-9);
      pace_.Note(count, seconds);
      result_.seconds_here += seconds;
      TellRecovered(/*has_step=*/true);
      LookAtRanks(seconds);
    }
  }

  // Tells of a recovery once a step is done again, or once the run is found to need none.
  void TellRecovered(bool has_step) {
    if (!recovered_.has_value()) return;
    recovered_->has_step = has_step;
    if (const int64_t lost = recovered_->steps_lost; lost > 0) {
      absl::StrAppend(&recovered_->text, "; ", Plural(lost, "step"),
                      has_step    ? " must be done again"
                      : lost == 1 ? " is lost"
                                  : " are lost");
    }
    if (options_.recovered != nullptr) {
      recovery_time_.emplace(recovered_->is_growth ? "growth_seconds" : "recovery_seconds",
                             options_.recovered(*recovered_));
    }
    recovered_.reset();
  }

  // `seconds`: the length of the burst that has ended.
  void LookAtRanks(double seconds) {
    const std::vector<actors::RankWorkReport> work = runner_->Work();
    for (Straggler& slow : stragglers_->Look(work, seconds)) {
      progress_.Say(absl::StrCat("WARNING: ", slow.Text()));
      if (options_.may_replace == nullptr) continue;
      if (!runner_->StatesOutlive(slow.rank)) {
        progress_.Say(absl::StrCat("rank ", slow.rank, kKeepsItsProcess));
      } else if (options_.may_replace(slow.rank)) {
        slow_ = std::move(slow);
      }
    }
    if (options_.live == nullptr) return;
    step_parts_ = step_shares_.Look(work, seconds);
    const std::vector<live::RankBusy> busy = busy_shares_.Look(work, seconds);
    if (!busy.empty()) options_.live->SetWork(busy);
  }

  // A checkpoint does not include the gradients gathered since the last update, so it is written
  // right after an update: at the end of the run after the last update of the run, and after an
  // interrupt after the next update.
  int64_t NextCheckpoint(int64_t steps) const {
    const int64_t last = updates_.RoundDown(steps), every = options_.checkpoint_every,
                  done = result_.steps_done;
    if (every == 0 || options_.checkpoint.empty()) return last;
    const int64_t due = updates_.RoundUp(done / every * every);
    return std::min(last, due > done ? due : updates_.RoundUp((done / every + 1) * every));
  }
  bool MayEnd() const {
    return result_.steps_here == 0 || options_.checkpoint.empty() ||
           updates_.IsBetweenUpdates(result_.steps_done) ||
           updates_.RoundUp(result_.steps_done) > job_.training().steps();
  }

  // Returns the number of steps until other work is due between steps.
  int64_t UntilStop(int64_t steps) const {
    const int64_t done = result_.steps_done,
                  eval_every = evaluates() ? job_.training().eval_every() : 0;
    int64_t until = std::min(steps - done, runner_->StepsToNextCopy());
    if (eval_every > 0) until = std::min(until, eval_every - done % eval_every);
    const int64_t checkpoint_at = options_.checkpoint.empty() ? 0 : NextCheckpoint(steps);
    if (checkpoint_at > done) until = std::min(until, checkpoint_at - done);
    const bool awaits_update = grows_ || slow_.has_value() || (Interrupted() && !MayEnd()) ||
                               CheckpointIsAsked() || checkpoints_.IsDueByTime();
    if (awaits_update && !updates_.IsBetweenUpdates(done))
      until = std::min(until, updates_.RoundUp(done) - done);
    return until;
  }

  bool CheckpointIsAsked() const {
    return options_.checkpoints_asked != nullptr && options_.checkpoints_asked->load() > 0;
  }

  // Writes the checkpoint that a signal has asked for, once there are steps to keep and the last of
  // them has updated.
  absl::Status AnswerCheckpointRequest() {
    if (!CheckpointIsAsked()) return absl::OkStatus();
    const int asked = options_.checkpoints_asked->load();
    const int64_t done = result_.steps_done;
    absl::Status written = absl::OkStatus();
    if (options_.checkpoint.empty()) {
      progress_.Say(
          "WARNING: SIGUSR1 asks for a checkpoint, but the run has no file for it (--checkpoint)");
    } else if (result_.steps_here == 0 || !updates_.IsBetweenUpdates(done)) {
      return absl::OkStatus();
    } else if (checkpoints_.Has(done)) {
      progress_.Say(absl::StrCat("checkpoint of step ", done, " is ",
                                 checkpoints_.IsUnderWay(done) ? "on its way " : "", "in ",
                                 checkpoints_.PathOf(done), " already"));
    } else {
      written = WriteCheckpoint();
    }
    options_.checkpoints_asked->fetch_sub(asked);
    return written;
  }

  // Begins a checkpoint of the steps done, once the replicas of the weights are found to be equal.
  absl::Status WriteCheckpoint() {
    WEIR_RETURN_IF_ERROR(replicas_->Look(result_.steps_done, true, runner_.get()));
    return checkpoints_.WriteOnTheWay(result_.steps_done);
  }

  // Writes the checkpoint of --checkpoint-every 60s after the first update at which it is due.
  absl::Status WriteCheckpointDueByTime() {
    const int64_t done = result_.steps_done;
    if (!checkpoints_.IsDueByTime() || result_.steps_here == 0 ||
        !updates_.IsBetweenUpdates(done) || checkpoints_.Has(done))
      return absl::OkStatus();
    return WriteCheckpoint();
  }

  bool stops() const {
    return options_.on_nonfinite == OnNonfinite::kStop && nonfinite_.first().has_value();
  }

  // Draws the consequences of the steps of a burst. After a loss of ranks it may be called again.
  absl::Status EndBurst(int64_t steps) {
    Burst& burst = *burst_;
    if (!std::exchange(burst.is_checked, true)) {
      for (auto& [step, metrics] : reported_) {
        if (const std::string line = nonfinite_.Look(step, &metrics); !line.empty())
          progress_.Say(line);
      }
    }
    const int64_t done = result_.steps_done, eval_every = job_.training().eval_every();
    if (!burst.is_evaluated && !stops() && evaluates() &&
        (done == steps || (eval_every > 0 && done % eval_every == 0))) {
      WEIR_RETURN_IF_ERROR(Evaluate());
      burst.is_evaluated = evaluation_problem_.ok();
    }
    const bool checkpoint = done == burst.checkpoint_at && done < steps && !stops();
    if (!stops())
      WEIR_RETURN_IF_ERROR(replicas_->Look(done, checkpoint || done == steps, runner_.get()));
    const absl::Status checkpointed =
        checkpoint ? checkpoints_.WriteOnTheWay(done) : absl::OkStatus();
    if (!std::exchange(burst.is_reported, true)) ReportBurst(steps, burst.is_evaluated);
    if (!RanksAreGone(checkpointed)) burst_.reset();
    return checkpointed;
  }

  void ReportBurst(int64_t steps, bool evaluated) {
    const int64_t done = result_.steps_done;
    for (const auto& [step, metrics] : reported_) {
      if (stops() && step > nonfinite_.first()->step) break;
      ReportStep(step, steps, metrics, evaluated && step + 1 == done);
    }
    if (!evaluated) return;
    const std::string text = EvaluationText(job_, *result_.evaluation);
    progress_.Say(absl::StrCat("step ", done, ": ", text));
    if (options_.live != nullptr) options_.live->ReportEvaluation(done, text);
  }

  // A failed evaluation ends evaluations and not the run. Its error is returned at the end.
  absl::Status Evaluate() {
    progress_.Enter(live::Phase::kEvaluating);
    absl::StatusOr<std::map<int64_t, StepMetrics>> batches = runner_->Evaluate();
    progress_.Enter(live::Phase::kTraining);
    if (RanksAreGone(batches.status())) return batches.status();
    if (!batches.ok()) {
      evaluation_problem_ = batches.status();
      progress_.Say(
          absl::StrCat("WARNING: the evaluation after step ", result_.steps_done,
                       " failed, and there will be no more: ", batches.status().message()));
      return absl::OkStatus();
    }
    result_.evaluation = MeanOf(*batches, EvaluatedValues(job_, result_.steps_done));
    if (result_.evaluation->batches != runner_->facts().evaluation_batches) {
      return ErrorOf(absl::StatusCode::kInternal,
                     {"W0073", "",
                      absl::StrCat("metrics of ", runner_->facts().evaluation_batches, " batches"),
                      absl::StrCat(result_.evaluation->batches), ""});
    }
    return absl::OkStatus();
  }

  void ReportStep(int64_t step, int64_t steps, const StepMetrics& metrics, bool evaluated) {
    double loss = ValueOf(metrics, LossName(job_));
    if (metrics.count("grad_norm") > 0) gradient_norm_ = ValueOf(metrics, "grad_norm");
    double rate = static_cast<double>(items_.count) / step_seconds_;
    run_.NoteLoss(step, loss);
    live::LiveStep shown;
    shown.step = step + 1;
    shown.steps = steps;
    shown.loss = loss;
    shown.gradient_norm = gradient_norm_;
    shown.learning_rate = LearningRate(step);
    shown.items_per_second = rate;
    shown.step_seconds = step_seconds_;
    shown.seconds_left = pace_.SecondsFor(steps - step - 1);
    shown.mfu = Mfu();
    shown.parts = step_parts_;
    progress_.Show(shown);
    if (options_.live != nullptr && step + 1 == result_.steps_done)
      options_.live->ReportStep(shown);
    if (metrics_file_ == nullptr && event_file_ == nullptr) return;
    const EventFile::Scalars values = ValuesOf(step, metrics, rate, evaluated);
    if (metrics_file_ != nullptr) {
      MetricLine line(step + 1);
      for (const auto& [name, value] : values) line.Add(name, value);
      SayUnlessEmpty(metrics_file_->Write(line));
    }
    if (event_file_ == nullptr) return;
    const double now = static_cast<double>(RealTimeNs()) * 1e-9;
    SayUnlessEmpty(event_file_->Write(step + 1, now, values));
  }

  // Returns the learning rate of the update that `step` makes or gathers gradients for.
  double LearningRate(int64_t step) const {
    return schedule_.At(std::max<int64_t>(0, updates_.OptimizerStep(step)));
  }

  // Returns what a step reports, by the names of docs/reference/metrics.md.
  EventFile::Scalars ValuesOf(int64_t step, const StepMetrics& metrics, double rate,
                              bool evaluated) {
    EventFile::Scalars values;
    values.emplace_back("loss", ValueOf(metrics, LossName(job_)));
    if (metrics.count("grad_norm") > 0)
      values.emplace_back("grad_norm", ValueOf(metrics, "grad_norm"));
    values.emplace_back("lr", LearningRate(step));
    values.emplace_back(absl::StrCat(items_.name, "_per_second"), rate);
    values.emplace_back("step_seconds", step_seconds_);
    if (const std::optional<double> mfu = Mfu()) values.emplace_back("mfu", *mfu);
    for (const auto& [name, value] : metrics) {
      if (name != LossName(job_) && name != "grad_norm") values.emplace_back(name, value);
    }
    if (recovery_time_.has_value()) values.push_back(*std::exchange(recovery_time_, std::nullopt));
    const RunCheckpoints::Costs costs = checkpoints_.TakeCosts(step + 1);
    if (costs.write_seconds.has_value())
      values.emplace_back("checkpoint_seconds", *costs.write_seconds);
    if (costs.stall_seconds.has_value())
      values.emplace_back("checkpoint_stall_seconds", *costs.stall_seconds);
    if (step + 1 == result_.steps_done) AddCopyCosts(runner_->TakeCopyCosts(), &values);
    if (!evaluated) return values;
    for (const auto& [name, value] : result_.evaluation->means) {
      values.emplace_back(absl::StrCat("eval_", name == LossName(job_) ? "loss" : name), value);
    }
    if (auto bits = BitsPerByte(job_, *result_.evaluation))
      values.emplace_back("eval_bits_per_byte", *bits);
    return values;
  }

  // A file of this run may replace that of a longer run, which nobody may have meant.
  absl::Status KeepEarlier(const std::string& what, const std::string& path) {
    WEIR_ASSIGN_OR_RETURN(const std::optional<std::string> kept,
                          KeepEarlierRun(path, result_.steps_done));
    if (kept.has_value())
      progress_.Say(absl::StrCat(what, " of a longer run at ", path, " kept as ", *kept));
    return absl::OkStatus();
  }

  absl::Status SaveWeights(const std::string& path) {
    WEIR_RETURN_IF_ERROR(KeepEarlier("weights", path));
    return runner_
        ->Save({StateSet::kWeights, store::WeightsMetadataOf(job_.name(), result_.steps_done), path,
                NonfiniteInFiles(options_.on_nonfinite)})
        .status();
  }

  // Writes the trace of a job that failed, so that a person can find out why.
  void LeaveTrace() {
    const absl::Status written = runner_->WriteTrace(options_.trace);
    if (written.ok()) progress_.Say("trace of the failed job written to " + options_.trace);
    if (!written.ok() && !absl::IsFailedPrecondition(written))
      progress_.Say(absl::StrCat("no trace: ", written.message()));
  }

  // Writes all results that can be written, and then returns the first error.
  absl::Status WriteResults() {
    if (result_.interrupted && run_.StepsAt(result_.steps_done) == 0) {
      progress_.Say(run_.NothingDoneText());
      return absl::OkStatus();
    }
    progress_.Enter(live::Phase::kSaving);
    std::vector<absl::Status> problems;
    if (result_.interrupted && result_.steps_here == 0) {  // an earlier start has done all steps
      progress_.Say(absl::StrCat("the checkpoint of this step is ", checkpoints_.ResumePath()));
    } else if (checkpoints_.is_wanted()) {
      const absl::Status written = checkpoints_.WriteLast(result_.steps_done, &problems);
      result_.checkpoints = checkpoints_.totals();
      WEIR_RETURN_IF_ERROR(written);
    }
    if (!options_.save.empty()) WEIR_RETURN_IF_ERROR(WriteWeights(&problems));
    WriteTrace();
    if (!evaluation_problem_.ok()) problems.push_back(evaluation_problem_);
    SayWhatIsMissing();
    for (size_t i = 1; i < problems.size(); ++i)
      progress_.Say(absl::StrCat("ERROR: ", problems[i].message()));
    return problems.empty() ? absl::OkStatus() : problems[0];
  }

  absl::Status WriteWeights(std::vector<absl::Status>* problems) {
    const absl::Status status = SaveWeights(options_.save);
    if (RanksAreGone(status)) return status;
    if (status.ok()) {
      progress_.Say("weights written to " + options_.save);
      return absl::OkStatus();
    }
    problems->push_back(status);
    const std::optional<RunFolder::Written> last = checkpoints_.Last();
    if (last.has_value() && last->step == result_.steps_done) {
      progress_.Say(absl::StrCat("ERROR: weights not written to ", options_.save,
                                 "; the checkpoint has them: --resume ", last->path,
                                 " --save PATH"));
    }
    return absl::OkStatus();
  }

  void WriteTrace() {
    if (options_.trace.empty()) return;
    const absl::Status status = runner_->WriteTrace(options_.trace);
    // Otherwise the code that ends the job writes the trace, and says so.
    const bool is_for_here = !absl::IsFailedPrecondition(status);
    if (!status.ok()) {
      result_.incomplete.push_back(
          absl::StrCat("--trace ", options_.trace,
                       is_for_here ? "" : " (unless a line above says that it is written)"));
    }
    if (!is_for_here) return;
    progress_.Say(status.ok() ? absl::StrCat("trace written to ", options_.trace, ": weir view ",
                                             options_.trace, ", weir trace report ", options_.trace)
                              : absl::StrCat("WARNING: no trace: ", status.message()));
  }

  void SayWhatIsMissing() {
    SayUnlessEmpty(nonfinite_.Summary());
    if (metrics_file_ != nullptr) SayLost("--metrics " + options_.metrics, metrics_file_->lost());
    if (event_file_ != nullptr)
      SayLost("--tensorboard " + options_.tensorboard, event_file_->lost());
  }
  void SayLost(const std::string& output, const LostWrites& lost) {
    if (lost.Summary().empty()) return;
    progress_.Say(lost.Summary());
    result_.incomplete.push_back(output);
  }
  void SayUnlessEmpty(const std::string& line) {
    if (!line.empty()) progress_.Say(line);
  }

  // No state has changed since the step whose update was left out, so the states are those before
  // that step. If only the loss was not finite, updates went on, and the states are those of the
  // last step. Earlier files stay as they are, and the states go into new files beside them.
  absl::Status EndAtNonfinite() {
    const NonfiniteStep& bad = *nonfinite_.first();
    const int64_t ran = result_.steps_done;
    checkpoints_.Await();
    result_.steps_done = updates_.RoundDown(nonfinite_.first_left_out().value_or(ran));
    if (result_.steps_done > started_at_) {
      if (checkpoints_.is_wanted() && updates_.delay == 0) {
        const std::string path = checkpoints_.base_path();
        KeepStopped("checkpoint", path,
                    checkpoints_.WriteStopped(result_.steps_done, path + kStoppedSuffix));
      }
      if (!options_.save.empty())
        KeepStopped("weights", options_.save, SaveWeights(options_.save + kStoppedSuffix));
    }
    WriteTrace();
    SayWhatIsMissing();
    const std::string first = FindFirstTensor(bad);
    return ErrorOf(
        absl::StatusCode::kOutOfRange,
        {"W0962", absl::StrCat("step ", bad.step + 1), "a finite loss and finite gradients",
         absl::StrCat(bad.found, first.empty() ? "" : "; first not finite: " + first),
         AdviceOnNonfinite(job_.training(), first)});
  }

  void KeepStopped(const std::string& what, const std::string& path, const absl::Status& status) {
    progress_.Say(status.ok() ? absl::StrCat(what, " of step ", result_.steps_done,
                                             ", the last finite, written to ", path, kStoppedSuffix,
                                             "; ", path, " is left as it was")
                              : absl::StrCat("WARNING: ", what, " of step ", result_.steps_done,
                                             " not kept: ", status.message()));
  }

  // Repeats the steps whose gradients the update would have used, until one of them shows the
  // source.
  std::string FindFirstTensor(const NonfiniteStep& bad) {
    const int64_t gathered =
        bad.loss_is_bad ? 1 : std::min(updates_.every * (updates_.delay + 1), kStepsInspectedMax);
    for (int64_t step = std::max(started_at_, bad.step + 1 - gathered); step <= bad.step; ++step) {
      absl::StatusOr<std::vector<actors::NonfiniteFinding>> findings = runner_->InspectStep(step);
      if (!findings.ok()) return "";
      if (const std::optional<actors::NonfiniteFinding> first = actors::FirstOf(*findings);
          first.has_value())
        return first->text;
    }
    return "";
  }

  proto::Job job_;
  const TrainOptions& options_;
  RunSoFar own_run_;  // unless the options name one
  RunSoFar& run_;
  MonotonicClock clock_;
  const StepItems items_;
  Progress progress_;
  LearningRateSchedule schedule_;
  UpdateRate updates_;  // meaningful once a runner is open
  std::unique_ptr<JobRunner> runner_;
  // A burst of steps that are done, and what of its consequences is drawn: a loss of ranks may come
  // between.
  struct Burst {
    int64_t checkpoint_at = 0;  // the step after which a checkpoint was due when it began
    bool is_checked = false;    // for values that are not finite
    bool is_evaluated = false;
    bool is_reported = false;
  };
  std::optional<Burst> burst_;                 // the last one, if consequences are left
  std::map<int64_t, StepMetrics> reported_;    // of the last burst
  std::unique_ptr<MetricsFile> metrics_file_;  // null: no metrics file is wanted
  std::unique_ptr<EventFile> event_file_;      // null: --tensorboard is not wanted
  NonfiniteSteps nonfinite_;
  RunFolder own_folder_;  // unless options_.folder is given
  RunCheckpoints checkpoints_;
  std::optional<ReplicaWatch> replicas_;  // from Open on
  absl::Status evaluation_problem_;
  std::optional<double> gradient_norm_;  // the last reported
  TrainResult result_;
  int64_t started_at_ = 0;                // steps done before
  double step_seconds_ = 0;               // mean over the last burst
  bool is_ending_ = false;                // all steps are done, and files are written
  bool grows_ = false;                    // as soon as the run rests after an update
  std::optional<RunRecovery> recovered_;  // until it is told
  // The name and the seconds of the last one, which is told, and not yet in a row.
  std::optional<std::pair<std::string, double>> recovery_time_;
  WarmPace pace_;
  std::optional<StragglerWatch> stragglers_;  // from the constructor on
  std::optional<Straggler> slow_;             // to be replaced before the next step
  BusyShares busy_shares_;
  StepShares step_shares_;
  std::vector<double> step_parts_;  // of the last burst, by actors::TimePart
  double model_flops_ = 0;          // of a step
  PeakArithmetic peak_;
};

}  // namespace

absl::StatusOr<TrainResult> Train(const proto::Job& job, const TrainOptions& options) {
  return Trainer(job, options).Run();
}

}  // namespace weir::train
