#include "tools/train/rank_group.h"

#include <algorithm>

#include "runtime/base/status.h"
#include "tools/train/job_variant.h"
#include "tools/train/prepare_training.h"
#include "tools/weights/averages.h"

namespace weir::train {

absl::StatusOr<std::unique_ptr<RankGroup>> RankGroup::Open(const proto::Job& job,
                                                           const RankGroupOptions& options) {
  std::unique_ptr<RankGroup> group(new RankGroup());
  TrainingPlans plans;
  if (options.prepared != nullptr) {
    group->dataset_ = options.prepared->dataset;
    plans = options.prepared->plans;
  } else {
    proto::Job here = job;
    if (options.data.has_value()) *here.mutable_data() = *options.data;
    WEIR_ASSIGN_OR_RETURN(group->dataset_, OpenJobData(here));
  }
  group->feed_ = std::make_unique<DatasetFeed>(group->dataset_.get(), store::DataPart::kTrain,
                                               MicroBatches(job));
  group->feed_->set_sample_offset(options.sample_offset);
  JobSessionOptions session;
  session.ranks = options.ranks;
  session.threads_per_device = options.threads_per_device;
  session.devices_here = options.devices_here;
  session.feed = group->feed_.get();
  session.sink = &group->log_;
  session.first_step = options.first_step;
  session.epoch = options.epoch;
  session.role = static_cast<uint16_t>(GroupRole::kTraining);
  session.plan_id = options.plan_id;
  session.plan = plans.training;
  group->next_step_ = options.first_step;
  session.rhythm = options.rhythm;
  session.exchange = options.exchange;
  session.on_nonfinite = options.on_nonfinite;
  session.tell = options.tell;
  if (options.network) session.network = options.network(GroupRole::kTraining);
  WEIR_ASSIGN_OR_RETURN(group->training_, OpenJobSession(job, session));
  session.role = static_cast<uint16_t>(GroupRole::kEvaluation);
  session.plan_id.clear();  // the evaluation's id follows from the job, as the training's does
  session.plan = plans.evaluation;
  *group->settings_.mutable_training() = job.training();
  // Averages are copied, so that an evaluation before the first update can take the weights.
  if (!EvaluatesAverages(job)) session.weights_of = group->training_.session.get();
  session.rhythm = options.evaluation_rhythm;
  if (options.network) session.network = options.network(GroupRole::kEvaluation);
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Evaluator> evaluator,
                        Evaluator::Create(job, group->dataset_.get(), session));
  if (evaluator != nullptr) {
    group->evaluation_batches_ = evaluator->batches();
    group->evaluation_plan_ = evaluator->plan();
  }
  {
    MutexLock lock(&group->mutex_);
    group->evaluator_ = std::move(evaluator);
  }
  return group;
}

PreparedTraining RankGroup::Prepared() const {
  PreparedTraining prepared;
  prepared.dataset = dataset_;
  prepared.plans.training = training_.plan;
  prepared.plans.evaluation = evaluation_plan_;
  return prepared;
}

Evaluator* RankGroup::evaluator() const {
  MutexLock lock(&mutex_);
  return evaluator_.get();
}

int64_t RankGroup::bytes_per_device() const {
  int64_t bytes = 0;
  const Evaluator* const evaluator = this->evaluator();
  for (const RankId rank : training_.session->local_ranks()) {
    const actors::RankMemory memory = training_.session->Memory(rank);
    int64_t own = memory.arena_bytes + memory.workspace_bytes;
    if (evaluator != nullptr) {
      const actors::RankMemory beside = evaluator->session()->Memory(rank);
      own += beside.arena_bytes + beside.workspace_bytes;
    }
    bytes = std::max(bytes, own);
  }
  return bytes;
}

absl::Status RankGroup::Load(const LoadOrder& order) {
  WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights from, OpenWeights(order));
  return LoadShards(from, order.set, training_.session.get());
}

absl::StatusOr<std::map<int64_t, StepMetrics>> RankGroup::RunSteps(int64_t steps) {
  WEIR_RETURN_IF_ERROR(training_.session->RunSteps(steps));
  next_step_ += steps;
  return log_.Take();
}

absl::StatusOr<std::map<int64_t, StepMetrics>> RankGroup::Evaluate() {
  Evaluator* const evaluator = this->evaluator();
  if (evaluator == nullptr)
    return absl::FailedPreconditionError("there is no evaluation after one that failed");
  WEIR_RETURN_IF_ERROR(CopyWeights(*training_.session, EvaluatedValues(settings_, next_step_),
                                   evaluator->session()));
  absl::StatusOr<std::map<int64_t, StepMetrics>> reported = evaluator->Run();
  if (reported.ok()) return reported;
  std::unique_ptr<Evaluator> failed;
  MutexLock lock(&mutex_);
  failed = std::move(evaluator_);
  return reported;
}

absl::StatusOr<std::vector<actors::NonfiniteFinding>> RankGroup::InspectStep(int64_t as_step) {
  absl::StatusOr<std::vector<actors::NonfiniteFinding>> findings =
      training_.session->InspectStep(as_step);
  log_.Take();  // the reports of that step were already taken
  return findings;
}

absl::StatusOr<std::map<std::string, SavedPart>> RankGroup::SaveShards(
    StateSet set, const std::string& temporary_path, const std::string& path) {
  return weir::train::SaveShards(*training_.session, set, temporary_path, path);
}

void RankGroup::Stop(const absl::Status& reason) {
  training_.session->Stop(reason);
  MutexLock lock(&mutex_);
  if (evaluator_ != nullptr) evaluator_->session()->Stop(reason);
}

// Only one of the two sessions runs at a time. The other session's counts stand still.
actors::SessionProgress RankGroup::Progress() const {
  actors::SessionProgress progress = training_.session->Progress();
  MutexLock lock(&mutex_);
  if (evaluator_ == nullptr) return progress;
  const actors::SessionProgress evaluating = evaluator_->session()->Progress();
  progress.acts += evaluating.acts;
  if (!evaluating.done) progress.activity = evaluating.activity + " (evaluation)";
  progress.asleep = progress.asleep && evaluating.asleep;
  progress.done = progress.done && evaluating.done;
  if (progress.fault.ok()) progress.fault = evaluating.fault;
  return progress;
}

std::string RankGroup::DescribeStall() const {
  std::string text = training_.session->DescribeStall();
  if (Evaluator* const evaluator = this->evaluator(); evaluator != nullptr)
    text += evaluator->session()->DescribeStall();
  return text;
}

std::vector<actors::Wait> RankGroup::ListWaits() const {
  std::vector<actors::Wait> waits = training_.session->ListWaits();
  if (Evaluator* const evaluator = this->evaluator(); evaluator != nullptr) {
    for (actors::Wait& wait : evaluator->session()->ListWaits()) waits.push_back(std::move(wait));
  }
  return waits;
}

}  // namespace weir::train
