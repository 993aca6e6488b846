#include "tools/fleet/fleet_runner.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/ir/rhythm_codec.h"
#include "compiler/job/check_training.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/outcome.h"
#include "tools/fleet/fleet_start.h"
#include "tools/fleet/load_codec.h"
#include "tools/fleet/metrics_of_answers.h"
#include "tools/fleet/piece_codec.h"
#include "tools/fleet/rank_spread.h"
#include "tools/fleet/worker_facts.h"
#include "tools/train/prepare_training.h"

namespace weir::fleet {
namespace {

proto::OpenCommand::OnNonfinite CommandOf(train::OnNonfinite on_nonfinite) {
  switch (on_nonfinite) {
    case train::OnNonfinite::kStop: return proto::OpenCommand::STOP;
    case train::OnNonfinite::kSkip: return proto::OpenCommand::SKIP;
    case train::OnNonfinite::kContinue: return proto::OpenCommand::CONTINUE;
  }
  return proto::OpenCommand::STOP;
}

// A worker may report the start of its first act twice with a few ns of difference, because it
// learns the length of a tick.
constexpr int64_t kTickErrorNs = 10'000;

// Shards come from all workers at once, and both ends hold them. A batch of one worker stays far
// below the limit of a message.
constexpr int64_t kBatchBytesOfAll = 32 << 20;
constexpr int64_t kBatchBytesMin = 1 << 20;

std::map<std::string, train::SavedPart> PartsOf(const proto::WorkerAnswer& answer) {
  std::map<std::string, train::SavedPart> parts;
  for (const proto::PartFact& part : answer.part())
    parts[part.name()] = {part.elements(), part.nonfinite()};
  return parts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<train::JobRunner>> FleetRunner::Open(
    const FleetOptions& options, const proto::Job& job, const train::RunnerOptions& runner_options,
    std::unique_ptr<Fleet>* owner) {
  // Errors of the job are better reported before anything starts.
  train::PreparedTraining own;
  const train::PreparedTraining* prepared = runner_options.prepared;
  if (prepared == nullptr) {
    train::TrainOptions train_options;
    train_options.threads_per_device = runner_options.threads_per_device;
    WEIR_ASSIGN_OR_RETURN(own, train::PrepareTraining(job, train_options, {}));
    prepared = &own;
  }
  const compiler::LogicalPlan* const plan = prepared->plans.training.get();
  const int num_ranks = static_cast<int>(plan->places.num_ranks());
  WEIR_RETURN_IF_ERROR(LaunchFleet(options, num_ranks, prepared->bytes_of_rank, owner));
  Fleet* const fleet = owner->get();

  std::unique_ptr<FleetRunner> runner(new FleetRunner(fleet, options, runner_options));
  runner->runner_options_.prepared = nullptr;  // it may not outlive this call
  runner->console_ = options.console;
  runner->updates_ = compiler::UpdateRateOf(job.training());
  runner->steps_done_ = runner_options.first_step;
  runner->layout_ = fleet->epoch();
  runner->TakeJob(job, *prepared);
  IdVector<WorkerId, proto::WorkerCommand> commands = runner->open_commands_;
  for (const WorkerId worker : fleet->workers()) {
    proto::OpenCommand* const open = commands[worker].mutable_open();
    open->set_tells_shards(options.recovers);
    open->set_layout(runner->layout_);
    open->set_states_layout(runner->layout_);
  }
  WEIR_ASSIGN_OR_RETURN(auto answers, fleet->CallEach(commands, Fleet::Watch::kNone));
  WEIR_RETURN_IF_ERROR(CheckInputs(*fleet, options.inputs, fleet->input_files(), answers));
  WEIR_RETURN_IF_ERROR(CheckProcessors(*fleet, job, answers));
  WEIR_RETURN_IF_ERROR(runner->TakeFacts(answers));
  if (options.recovers) WEIR_RETURN_IF_ERROR(runner->TakeShards(answers));
  runner->SayLossOutlook();
  return runner;
}

void FleetRunner::TakeJob(const proto::Job& job, const train::PreparedTraining& prepared) {
  job_ = job;
  const compiler::LogicalPlan& plan = *prepared.plans.training;
  const compiler::LogicalPlan* const evaluation = prepared.plans.evaluation.get();
  facts_.num_ranks = plan.places.num_ranks();
  facts_.mesh = plan.mesh_text;
  const proto::RhythmSpec rhythm = compiler::ToProto(plan.rhythm);
  const proto::RhythmSpec evaluation_rhythm =
      evaluation != nullptr ? compiler::ToProto(evaluation->rhythm) : proto::RhythmSpec();
  open_commands_ = IdVector<WorkerId, proto::WorkerCommand>(fleet_->num_workers());
  for (const WorkerId worker : fleet_->workers()) {
    proto::OpenCommand* open = open_commands_[worker].mutable_open();
    *open = OpenCommandFor(*fleet_, worker, options_, job, runner_options_.threads_per_device,
                           plan.plan_id);
    open->set_first_step(runner_options_.first_step);
    open->set_sample_offset(runner_options_.sample_offset);
    open->set_on_nonfinite(CommandOf(runner_options_.on_nonfinite));
    *open->mutable_rhythm() = rhythm;
    if (evaluation != nullptr) *open->mutable_evaluation_rhythm() = evaluation_rhythm;
  }
}

absl::Status FleetRunner::TakeFacts(const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  int processes = 0;
  facts_.bytes_per_device = 0;
  for (const WorkerId worker : fleet_->workers()) {
    if (fleet_->ranks_of(worker).empty()) continue;
    ++processes;
    const proto::WorkerAnswer& answer = answers[worker];
    facts_.data = answer.data();
    facts_.threads_per_device = answer.threads_per_device();
    facts_.evaluation_batches = answer.evaluation_batches();
    facts_.bytes_per_device = std::max(facts_.bytes_per_device, answer.bytes_per_device());
    WEIR_RETURN_IF_ERROR(TakeStates(answer, &facts_.states));
  }
  facts_.where = absl::StrCat("in ", processes, processes == 1 ? " process" : " processes");
  return absl::OkStatus();
}

absl::Status FleetRunner::Load(const train::LoadOrder& order) {
  WEIR_RETURN_IF_ERROR(fleet_->BringInput(order.path));
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet_->num_workers());
  for (const WorkerId worker : fleet_->workers()) {
    proto::LoadCommand* const load = commands[worker].mutable_load();
    FillLoad(
        order, [&](const std::string& path) { return fleet_->PathOn(worker, path); }, load);
  }
  const absl::Status loaded = fleet_->CallEach(commands, Fleet::Watch::kNone).status();
  if (!absl::IsNotFound(loaded) || !fleet_->is_spread_over_hosts()) return loaded;
  return ErrorOf(absl::StatusCode::kNotFound,
                 {"W0728", order.path, "this path on every host", "a host that does not have it",
                  "a folder that all hosts share, or --ship"});
}

absl::StatusOr<std::map<int64_t, train::StepMetrics>> FleetRunner::RunSteps(int64_t steps) {
  fleet_->AllowRecovery();
  fleet_->Enter(launch::FailureMoment::kSteps);
  WEIR_ASSIGN_OR_RETURN(const auto answers, RunAfterCopies(steps, KeepIsDue()));
  steps_done_ += steps;
  if (steps > 0) {
    fleet_->NoteStepDone();
    dismissed_.clear();
  }
  TakeWork(answers);
  std::map<int64_t, train::StepMetrics> reported = MetricsOf(answers);
  if (metrics_of_every_step_.empty() && !reported.empty()) {
    for (const auto& [name, value] : reported.begin()->second) metrics_of_every_step_.insert(name);
  }
  for (const auto& [step, metrics] : reported) {
    std::erase_if(metrics_of_every_step_,
                  [&metrics](const std::string& name) { return metrics.count(name) == 0; });
  }
  return reported;
}

// Runs steps after the copies of the states, if they are due.
absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> FleetRunner::RunAfterCopies(int64_t steps,
                                                                                    bool keeps) {
  proto::WorkerCommand command;
  command.mutable_run()->set_steps(steps);
  command.mutable_run()->set_keeps_states(keeps);
  if (keeps && buddies_.is_on()) {
    command.mutable_run()->set_sends_copy(true);
    buddies_.NoteBegun(steps_done_);
  }
  absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> answers =
      fleet_->Call(command, Fleet::Watch::kProgress);
  failed_ = !answers.ok();
  WEIR_RETURN_IF_ERROR(answers.status());
  if (keeps) NoteKept(*answers);
  if (buddies_.is_on()) buddies_.NoteRun(*answers);
  return answers;
}

void FleetRunner::TakeWork(const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  work_.clear();
  for (const proto::WorkerAnswer& answer : answers) {
    for (const proto::RankWorkFact& fact : answer.work()) {
      work_.push_back({RankId(fact.rank()), fact.stage(), fact.busy_ns(), fact.planned_ns(),
                       fact.measured_ns(), fact.cpu_ns()});
      actors::TimeParts& parts = work_.back().part_ns;
      std::copy_n(fact.part_ns().begin(), std::min<size_t>(parts.size(), fact.part_ns_size()),
                  parts.begin());
    }
  }
}

// If one worker fails, its peers see the worker leave. The report of the failed worker counts, and
// the peers' reports do not.
absl::StatusOr<std::map<int64_t, train::StepMetrics>> FleetRunner::Evaluate() {
  proto::WorkerCommand command;
  command.mutable_evaluate();
  fleet_->Enter(launch::FailureMoment::kEvaluation);
  absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> answers =
      fleet_->Call(command, Fleet::Watch::kProgress);
  failed_ = !answers.ok();
  WEIR_RETURN_IF_ERROR(answers.status());
  fleet_->Enter(launch::FailureMoment::kSteps);
  absl::Status failure;
  for (const proto::WorkerAnswer& answer : *answers) {
    if (!answer.has_failure()) continue;
    const absl::Status status = control::FromOutcome(answer.failure());
    if (failure.ok() || absl::IsUnavailable(failure)) failure = status;
  }
  if (absl::IsUnavailable(failure))
    failure = WithCode(absl::StatusCode::kInternal, failure);  // workers live: the job goes on
  WEIR_RETURN_IF_ERROR(failure);
  return MetricsOf(*answers);
}

absl::StatusOr<uint32_t> FleetRunner::Save(const train::SaveOrder& order) {
  fleet_->Enter(launch::FailureMoment::kSaving);
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::SafetensorsWriter> writer,
                        train::BeginSave(facts_.states, order.set, order.metadata, order.path));
  WEIR_RETURN_IF_ERROR(fleet_->is_spread_over_hosts() ? CollectShards(order, writer.get())
                                                      : LetWorkersWrite(order, writer.get()));
  WEIR_RETURN_IF_ERROR(writer->Commit());
  return writer->header_sum();
}

absl::StatusOr<std::optional<train::CheckpointWritten>> FleetRunner::EndCheckpoint(Wait wait) {
  // After a failure only the end of what was begun is awaited.
  if (wait == Wait::kYes && !failed_) fleet_->Enter(launch::FailureMoment::kSaving);
  return checkpoint_.End(wait);
}

absl::Status FleetRunner::LetWorkersWrite(const train::SaveOrder& order,
                                          store::SafetensorsWriter* writer) {
  proto::WorkerCommand command;
  command.mutable_save()->set_temporary_path(writer->temporary_path());
  command.mutable_save()->set_everything(IsEverything(order.set));
  command.mutable_save()->set_path(order.path);
  WEIR_ASSIGN_OR_RETURN(auto answers, fleet_->Call(command, Fleet::Watch::kNone));
  for (const proto::WorkerAnswer& answer : answers)
    WEIR_RETURN_IF_ERROR(train::NoteParts(PartsOf(answer), order, writer));
  return absl::OkStatus();
}

// Lets the workers, which may have no file in common with this process, send their shards in
// batches.
absl::Status FleetRunner::CollectShards(const train::SaveOrder& order,
                                        store::SafetensorsWriter* writer) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsPart> file,
                        store::SafetensorsPart::Open(writer->temporary_path(), order.path));
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet_->num_workers());
  for (proto::WorkerCommand& command : commands) {
    command.mutable_save()->set_everything(IsEverything(order.set));
    command.mutable_save()->set_path(order.path);
    command.mutable_save()->set_bytes_max(
        std::max(kBatchBytesMin, kBatchBytesOfAll / fleet_->num_workers()));
  }
  for (bool is_done = false; !is_done;) {
    WEIR_ASSIGN_OR_RETURN(auto answers, fleet_->CallEach(commands, Fleet::Watch::kNone));
    is_done = true;
    for (const WorkerId worker : fleet_->workers()) {
      proto::WorkerAnswer& answer = answers[worker];
      for (proto::ShardPiece& sent : *answer.mutable_piece()) {
        WEIR_ASSIGN_OR_RETURN(const train::ShardPiece piece, TakePiece(&sent));
        WEIR_RETURN_IF_ERROR(file->Write(piece.name, piece.slice, piece.bytes.data()));
      }
      WEIR_RETURN_IF_ERROR(train::NoteParts(PartsOf(answer), order, writer));
      commands[worker].mutable_save()->set_begin(answer.end());
      is_done = is_done && answer.is_last();
    }
  }
  return file->Flush();
}

absl::StatusOr<std::vector<actors::NonfiniteFinding>> FleetRunner::InspectStep(int64_t as_step) {
  proto::WorkerCommand command;
  command.mutable_inspect()->set_as_step(as_step);
  WEIR_ASSIGN_OR_RETURN(auto answers, fleet_->Call(command, Fleet::Watch::kProgress));
  std::vector<actors::NonfiniteFinding> findings;
  for (const proto::WorkerAnswer& answer : answers) {
    for (const proto::NonfiniteFact& fact : answer.nonfinite()) {
      findings.push_back({RankId(fact.rank()),
                          static_cast<actors::NonfiniteFinding::Origin>(fact.origin()),
                          fact.start_ns(), fact.text()});
    }
  }
  return findings;
}

absl::StatusOr<std::vector<train::ShardSum>> FleetRunner::SumWeights() {
  proto::WorkerCommand command;
  command.mutable_sum_weights();
  WEIR_ASSIGN_OR_RETURN(auto answers, fleet_->Call(command, Fleet::Watch::kNone));
  std::vector<train::ShardSum> sums;
  for (const proto::WorkerAnswer& answer : answers) {
    for (const proto::ShardSumFact& fact : answer.shard_sum()) {
      WEIR_ASSIGN_OR_RETURN(TensorSlice slice, SliceFrom(fact.name(), fact.slice()));
      sums.push_back({RankId(fact.rank()), fact.name(), std::move(slice), fact.crc()});
    }
  }
  return sums;
}

absl::Status FleetRunner::WriteTrace(const std::string& path) {
  if (failed_)
    return absl::FailedPreconditionError("the job failed: its workers leave the trace as they end");
  proto::WorkerCommand command;
  command.mutable_trace_begin();
  WEIR_ASSIGN_OR_RETURN(auto begins, fleet_->Call(command, Fleet::Watch::kNone));
  // Converts all clocks to the starter's. The trace begins before all acts, or, if older acts have
  // been dropped, when all ranks have acts.
  int64_t earliest_ns = std::numeric_limits<int64_t>::max();
  std::optional<int64_t> all_kept_ns;
  for (const WorkerId worker : fleet_->workers()) {
    const int64_t at = begins[worker].begin_ns() - fleet_->clock_offset_ns(worker);
    earliest_ns = std::min(earliest_ns, at);
    if (begins[worker].has_dropped_acts()) all_kept_ns = std::max(all_kept_ns.value_or(at), at);
  }
  const int64_t begin_ns = all_kept_ns.value_or(earliest_ns);
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet_->num_workers());
  for (const WorkerId worker : fleet_->workers()) {
    commands[worker].mutable_trace()->set_clock_offset_ns(fleet_->clock_offset_ns(worker));
    commands[worker].mutable_trace()->set_begin_ns(begin_ns - kTickErrorNs);
  }
  WEIR_ASSIGN_OR_RETURN(auto answers, fleet_->CallEach(commands, Fleet::Watch::kNone));
  // A trace is a sequence of packets, so the packets of all ranks, one rank after another, are one
  // trace.
  std::string joined;
  for (const proto::WorkerAnswer& answer : answers) joined += answer.trace();
  fleet_->NoteTraceComplete();
  return train::WriteTraceFile(path, joined);
}

}  // namespace weir::fleet
