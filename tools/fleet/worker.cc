#include "tools/fleet/worker.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/rhythm_codec.h"
#include "ops/kernels/cpu/processor_kernels.h"
#include "proto/worker.pb.h"
#include "runtime/base/build_id.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/acknowledged.h"
#include "runtime/control/greeting_time.h"
#include "runtime/control/outcome.h"
#include "runtime/control/worker_link.h"
#include "runtime/limits/process_limits.h"
#include "runtime/limits/resident_memory.h"
#include "runtime/store/shard_file.h"
#include "runtime/trace/kept_acts.h"
#include "runtime/transport/process_transport.h"
#include "tools/fleet/buddy_line.h"
#include "tools/fleet/kept_states.h"
#include "tools/fleet/load_codec.h"
#include "tools/fleet/piece_codec.h"
#include "tools/fleet/wait_account.h"
#include "tools/fleet/worker_facts.h"
#include "tools/fleet/worker_generation.h"
#include "tools/fleet/worker_outputs.h"
#include "tools/fleet/worker_states.h"
#include "tools/launch/core_dumps.h"
#include "tools/launch/process_state.h"
#include "tools/launch/worker_process.h"
#include "tools/live/live_run.h"
#include "tools/sandbox/sandbox.h"
#include "tools/train/generation_ranks.h"
#include "tools/train/output_ranks.h"
#include "tools/train/prepare_training.h"
#include "tools/train/rank_group.h"
#include "tools/train/replica_check.h"
#include "tools/train/shard_pieces.h"

namespace weir::fleet {
namespace {

// The number of looks at a silent starter within the time after which silence counts as death.
constexpr int64_t kLooksPerDeath = 4;
// The needs of a worker besides its ranks: threads of gRPC and UCX; files that are open while
// states are saved.
constexpr int kThreadsMin = 14;
constexpr int64_t kAddressesMin = 896 << 20;
constexpr int kDescriptorsMin = 12;
static_assert(kAccountBytesMax < control::kLastWordsBytesMax);
// An abort takes milliseconds. A starter that is gone sends none.
constexpr int64_t kReasonLimitMs = 500;

transport::UcxTransportOptions::Lanes LanesOf(proto::OpenCommand::Lanes lanes) {
  switch (lanes) {
    case proto::OpenCommand::SHARED_MEMORY:
      return transport::UcxTransportOptions::Lanes::kSharedMemory;
    case proto::OpenCommand::TCP: return transport::UcxTransportOptions::Lanes::kTcp;
    default: return transport::UcxTransportOptions::Lanes::kAutomatic;
  }
}

absl::StatusOr<std::shared_ptr<const compiler::JobRhythm>> RhythmOf(const proto::RhythmSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(compiler::JobRhythm rhythm, compiler::RhythmFromProto(spec));
  return std::make_shared<const compiler::JobRhythm>(std::move(rhythm));
}

train::OnNonfinite OnNonfiniteOf(proto::OpenCommand::OnNonfinite on_nonfinite) {
  switch (on_nonfinite) {
    case proto::OpenCommand::SKIP: return train::OnNonfinite::kSkip;
    case proto::OpenCommand::CONTINUE: return train::OnNonfinite::kContinue;
    default: return train::OnNonfinite::kStop;
  }
}

void AddShards(const actors::Session& session, proto::WorkerAnswer* answer) {
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (!IsKept(state.state_class)) continue;
      proto::HeldShard* const held = answer->add_held();
      held->set_rank(rank.value());
      held->set_name(state.name);
      *held->mutable_slice() = SliceToProto(state.slice);
    }
  }
}

class Worker {
 public:
  Worker(proto::WorkerBundle bundle, std::ostream& log)
      : bundle_(std::move(bundle)),
        log_(log),
        starter_pid_(::getppid()),
        starter_(starter_pid_, ::sysconf(_SC_CLK_TCK), bundle_.dead_after_ms() * 1'000'000) {
    const int memory = bundle_.trace_part().empty() ? -1 : launch::OwnMemory();
    if (memory >= 0) kept_acts_ = trace::KeptActs::Open(memory);
  }

  absl::Status Run() {
    control::WorkerLinkOptions options;
    options.coordinator_address = bundle_.coordinator_address();
    options.job_id = bundle_.job_id();
    options.epoch = bundle_.epoch();
    options.worker = WorkerId(bundle_.worker());
    options.credentials = {bundle_.authority_pem(), bundle_.certificate_pem(), bundle_.key_pem(),
                           bundle_.job_key()};
    options.build_id = BuildId();
    options.heartbeat_ms = bundle_.heartbeat_ms();
    options.coordinator_dead_after_ms = 2 * bundle_.dead_after_ms();
    options.connect_limit_ms += control::GreetingMs(bundle_.num_workers());
    options.fetch_limit_ms += control::GreetingMs(bundle_.num_workers());
    options.excuse_ms = [this] { return ExcuseStarterMs(); };
    options.progress = [this] { return Progress(); };
    options.on_epoch = [this](uint32_t epoch, const absl::Status& reason) {
      OnEpoch(epoch, reason);
    };
    options.on_abort = [this](const absl::Status& reason) { OnAbort(reason); };
    options.last_words = [this](const absl::Status& reason) { return LastWords(reason); };
    {
      MutexLock lock(&mutex_);
      epoch_ = group_epoch_ = bundle_.epoch();
    }
    WEIR_ASSIGN_OR_RETURN(link_, control::WorkerLink::Connect(std::move(options)));
    absl::Status end = link_->Serve([this](const std::string& command) { return Handle(command); });
    if (!end.ok()) WriteTracePart();
    CloseGroup();
    if (end.ok()) return end;
    // The starter itself reports why it ends the job. Only the worker can report that the starter
    // is gone.
    if (absl::IsUnavailable(end)) log_ << end.message() << std::endl;
    return absl::AbortedError(absl::StrCat("the job has ended: ", end.message()));
  }

 private:
  // Waits for a starter that is stopped (Ctrl-Z) or gets no core, because such a starter cannot
  // speak. When the starter ends, this process ends too: the system or the agent of this host sees
  // to that. Runs on the link's thread or on that of a call, one at a time.
  int64_t ExcuseStarterMs() {
    MutexLock lock(&starter_mutex_);
    std::string seen;
    if (bundle_.is_child_of_starter()) {
      if (!starter_.IsSuspended(MonotonicClock().NowNs())) return 0;
      seen = absl::StrCat("the starter (pid ", starter_pid_, ") says nothing: its process ",
                          launch::StateText(launch::ReadProcessState(starter_pid_).kind));
    } else {
      const std::optional<int64_t> age_ms =
          control::SinceAcknowledgedMs(bundle_.coordinator_address());
      if (!age_ms.has_value() || *age_ms > bundle_.dead_after_ms() / 2) return 0;
      seen = "the starter says nothing, but its machine acknowledges what this worker says";
    }
    if (!std::exchange(has_told_of_starter_, true))
      log_ << seen << "; this worker waits for it" << std::endl;
    return std::max<int64_t>(1, bundle_.dead_after_ms() / kLooksPerDeath);
  }

  // Returns the group; null if there is none. Only the serving thread may use the result, because
  // that thread alone ends the group.
  train::RankGroup* group() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return group_.get();
  }
  // Returns the ranks, which train, generate or give outputs; null if none are loaded.
  train::LoadedRanks* ranks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (outputs_ != nullptr) return outputs_.get();
    return generation_ != nullptr ? static_cast<train::LoadedRanks*>(generation_.get())
                                  : group_.get();
  }

  control::WorkerProgress Progress() {
    if (kept_acts_ != nullptr) kept_acts_->NoteTime();
    MutexLock lock(&mutex_);
    const int64_t resident_bytes = limits::OwnResidentBytes();
    train::LoadedRanks* const ranks = this->ranks();
    if (ranks == nullptr || !opening_.empty())
      return {0, false, opening_.empty() ? "waits for commands" : opening_, resident_bytes};
    actors::SessionProgress progress = ranks->Progress();
    TellFault(progress.fault);
    return {progress.acts, progress.done, std::move(progress.activity), resident_bytes};
  }

  // Tells of a connection that broke between two commands. No answer to a command would tell, and a
  // peer whose message was lost waits for the message for ever. The fault is told at the second
  // heartbeat that sees it, because a command that runs or the end of the job mostly comes first.
  void TellFault(const absl::Status& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::optional<Problem> problem = ProblemOf(fault);
    const bool is_broken = problem.has_value() && problem->code == transport::kBrokenConnection;
    if (!is_broken || !abort_.ok() || ++beats_with_fault_ != 2) return;
    TellTrouble(fault, group_epoch_);
  }

  // Tells the starter that the job fails here, in work of that epoch.
  void TellTrouble(const absl::Status& status, uint32_t epoch) {
    log_ << status.message() << std::endl;
    proto::WorkerTrouble trouble;
    *trouble.mutable_outcome() = control::ToOutcome(status);
    trouble.set_epoch(epoch);
    link_->Send(trouble.SerializeAsString());
  }

  void OnAbort(const absl::Status& reason) {
    MutexLock lock(&mutex_);
    abort_ = reason;
    aborted_.NotifyAll();
    if (train::LoadedRanks* const ranks = this->ranks(); ranks != nullptr) ranks->Stop(reason);
  }

  // The job goes on in another epoch: the work of the old one ends, and the states stay. The next
  // command tells what to do with them.
  void OnEpoch(uint32_t epoch, const absl::Status& reason) {
    MutexLock lock(&mutex_);
    epoch_ = epoch;
    beats_with_fault_ = 0;
    aborted_.NotifyAll();
    if (group_ != nullptr && group_epoch_ != epoch) group_->Stop(reason);
  }

  // Returns whether the job has ended. A failure after that is a consequence of the end.
  bool HasEnded() {
    MutexLock lock(&mutex_);
    return !abort_.ok();
  }

  // Returns whether the job or the epoch of this work has ended, or ends now. If a peer has left,
  // it mostly has left because the job ends, and the end is on its way to this worker too.
  bool AwaitEnd(uint32_t epoch) {
    MutexLock lock(&mutex_);
    return aborted_.WaitFor(&mutex_, kReasonLimitMs,
                            [this, epoch]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                              return !abort_.ok() || epoch_ != epoch;
                            });
  }

  // Tells what each actor of these ranks waits for. Only a job without progress is explained so;
  // other reasons explain themselves. Called when no command runs any more.
  std::string LastWords(const absl::Status& reason) {
    const train::LoadedRanks* ranks = nullptr;
    {
      MutexLock lock(&mutex_);
      ranks = this->ranks();
    }
    if (ranks == nullptr || !absl::IsAborted(reason)) return "";
    if (const std::string stall = ranks->DescribeStall(); !stall.empty())
      log_ << stall << std::endl;
    proto::WorkerLastWords words;
    *words.mutable_account() = AccountOf(ranks->ListWaits());
    return words.SerializeAsString();
  }

  // Lets the records of the ranks' acts outlive this process, if the job wants a trace. A process
  // without memory for that works on, and leaves no trace if it is killed.
  void KeepActs(const actors::Session& session) {
    if (kept_acts_ == nullptr) return;
    if (const absl::Status kept = session.KeepActs(bundle_.host(), kept_acts_.get()); !kept.ok())
      log_ << "no trace of these ranks if this process is killed: " << kept.message() << std::endl;
  }

  // Called when the job has failed and no command runs any more. Leaves a record of these ranks'
  // work for the search for the cause.
  void WriteTracePart() {
    train::RankGroup* const group = this->group();
    if (group == nullptr || bundle_.trace_part().empty()) return;
    const actors::Session& session = group->session();
    const std::string partial = bundle_.trace_part() + ".partial";
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    const absl::Status status = session.WriteTrace(
        file, {.describing_rank = session.local_ranks().front(), .host = bundle_.host()});
    file.close();
    if (!status.ok() || !file || std::rename(partial.c_str(), bundle_.trace_part().c_str()) != 0) {
      log_ << "no trace of these ranks: cannot write " << bundle_.trace_part() << std::endl;
    }
  }

  // Called when no command runs any more.
  void CloseGroup() {
    states_.LeaveBuddies();
    std::unique_ptr<train::RankGroup> group;
    std::unique_ptr<train::GenerationRanks> generation;
    std::unique_ptr<train::OutputRanks> outputs;
    {
      MutexLock lock(&mutex_);
      group = std::move(group_);
      generation = std::move(generation_);
      outputs = std::move(outputs_);
    }
  }

  absl::StatusOr<std::string> Handle(const std::string& bytes) {
    proto::WorkerCommand command;
    if (!command.ParseFromString(bytes)) return absl::InternalError("a command that is none");
    proto::WorkerAnswer answer;
    absl::Status status = Do(command, &answer);
    const bool ends_the_job = command.has_open() || command.has_run() || command.has_evaluate() ||
                              command.has_generation() || command.has_outputs();
    const uint32_t epoch = command.has_open() ? command.open().epoch() : GroupEpoch();
    if (absl::IsUnavailable(status) && !AwaitEnd(epoch) && ends_the_job) {
      // No process has ended the job yet, so the failure of the job begins here.
      TellTrouble(status, epoch);
    }
    if (!status.ok()) return status;
    return answer.SerializeAsString();
  }

  static absl::Status Load(const proto::LoadCommand& command, train::RankGroup* group) {
    WEIR_ASSIGN_OR_RETURN(const train::LoadOrder order, LoadOrderOf(command));
    return group->Load(order);
  }

  absl::Status Generate(const proto::GenerationCommand& command, proto::WorkerAnswer* answer) {
    if (command.has_open()) return OpenGeneration(command, answer);
    train::GenerationRanks* const ranks = generation_ranks();
    if (ranks == nullptr) return absl::FailedPreconditionError("no ranks are loaded yet");
    if (!command.has_load()) return DoGeneration(command, ranks, answer);
    WEIR_ASSIGN_OR_RETURN(const train::GenerationPlan plan, GenerationPlanOf(command));
    if (!ranks->IsOpen(plan)) return absl::FailedPreconditionError("the plan is not open");
    WEIR_ASSIGN_OR_RETURN(const train::LoadOrder order, LoadOrderOf(command.load()));
    WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights from, train::OpenWeights(order));
    return ranks->Load(plan, from);
  }

  absl::Status RunForOutputs(const proto::OutputsCommand& command, proto::WorkerAnswer* answer) {
    if (command.has_open()) return OpenForOutputs(command, answer);
    train::OutputRanks* const ranks = output_ranks();
    if (ranks == nullptr || !ranks->IsOpen())
      return absl::FailedPreconditionError("no ranks are loaded yet");
    if (!command.has_load()) return DoOutputs(command, ranks, answer);
    WEIR_ASSIGN_OR_RETURN(const train::LoadOrder order, LoadOrderOf(command.load()));
    WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights from, train::OpenWeights(order));
    return ranks->Load(from);
  }

  uint32_t GroupEpoch() {
    MutexLock lock(&mutex_);
    return group_epoch_;
  }

  // Runs steps. The copy of the states is made before, because a worker that is lost in these steps
  // leaves the states of the others in the middle of one. A copy travels to the buddy beside steps.
  absl::Status RunSteps(const proto::RunCommand& command, train::RankGroup* group,
                        proto::WorkerAnswer* answer) {
    if (command.keeps_states())
      WEIR_RETURN_IF_ERROR(states_.Keep(command, group->session(), answer));
    resting_step_ = -1;
    WEIR_ASSIGN_OR_RETURN(reported_, group->RunSteps(command.steps()));
    resting_step_ = group->session().steps_done();
    AddMetrics(reported_, answer);
    AddWork(group->session().Work(), answer);
    states_.AddFacts(answer);
    return absl::OkStatus();
  }

  // Takes states. A worker that leaves the job, because the mesh becomes smaller, takes none.
  absl::Status Take(const proto::TakeCommand& command) {
    train::RankGroup* const group = this->group();
    if (group == nullptr) {
      return command.range().empty() && command.own_range().empty()
                 ? absl::OkStatus()
                 : absl::FailedPreconditionError("no ranks are loaded yet");
    }
    WEIR_RETURN_IF_ERROR(states_.Take(command, &group->session()));
    if (command.is_last()) resting_step_ = group->session().steps_done();
    return absl::OkStatus();
  }

  absl::Status Do(const proto::WorkerCommand& command, proto::WorkerAnswer* answer) {
    if (command.has_open()) return Open(command.open(), answer);
    if (command.has_generation()) return Generate(command.generation(), answer);
    if (command.has_outputs()) return RunForOutputs(command.outputs(), answer);
    if (command.has_standing()) {
      states_.AddStanding(answer);
      answer->set_resting_step(resting_step_);
      AddMetrics(reported_, answer);
      AddInputFiles(command.standing().input_file(), answer);
      return absl::OkStatus();
    }
    if (command.has_give()) return states_.Give(command.give(), answer);
    if (command.has_take()) return Take(command.take());
    train::RankGroup* const group = this->group();
    if (group == nullptr) return absl::FailedPreconditionError("no ranks are loaded yet");
    switch (command.command_case()) {
      case proto::WorkerCommand::kLoad: return Load(command.load(), group);
      case proto::WorkerCommand::kRun: return RunSteps(command.run(), group, answer);
      case proto::WorkerCommand::kBuddy:
        return states_.JoinBuddies(command.buddy(), group->session().local_ranks().front(),
                                   network_of_line_, answer);
      case proto::WorkerCommand::kEvaluate: {
        absl::StatusOr<std::map<int64_t, train::StepMetrics>> reported = group->Evaluate();
        if (reported.ok()) {
          AddMetrics(*reported, answer);
        } else if (!HasEnded()) {
          *answer->mutable_failure() = control::ToOutcome(reported.status());
        } else {
          return reported.status();
        }
        return absl::OkStatus();
      }
      case proto::WorkerCommand::kSave: return Save(*group, command.save(), answer);
      case proto::WorkerCommand::kCheckpoint:
        return Checkpoint(*group, command.checkpoint(), answer);
      case proto::WorkerCommand::kInspect: {
        resting_step_ = -1;
        WEIR_ASSIGN_OR_RETURN(auto findings, group->InspectStep(command.inspect().as_step()));
        for (const actors::NonfiniteFinding& finding : findings) {
          proto::NonfiniteFact* fact = answer->add_nonfinite();
          fact->set_rank(finding.rank.value());
          fact->set_origin(static_cast<int>(finding.origin));
          fact->set_start_ns(finding.start_ns);
          fact->set_text(finding.text);
        }
        return absl::OkStatus();
      }
      case proto::WorkerCommand::kSumWeights: {
        WEIR_ASSIGN_OR_RETURN(const auto sums, train::SumWeights(group->session()));
        for (const train::ShardSum& sum : sums) {
          proto::ShardSumFact* fact = answer->add_shard_sum();
          fact->set_rank(sum.rank.value());
          fact->set_name(sum.name);
          *fact->mutable_slice() = SliceToProto(sum.slice);
          fact->set_crc(sum.crc);
        }
        return absl::OkStatus();
      }
      case proto::WorkerCommand::kTraceBegin:
        answer->set_begin_ns(group->session().TraceBeginNs());
        answer->set_has_dropped_acts(group->session().HasDroppedActs());
        return absl::OkStatus();
      case proto::WorkerCommand::kTrace: {
        std::ostringstream trace;
        WEIR_RETURN_IF_ERROR(
            group->session().WriteTrace(trace, {.offset_ns = command.trace().clock_offset_ns(),
                                                .begin_ns = command.trace().begin_ns(),
                                                .host = bundle_.host()}));
        answer->set_trace(std::move(trace).str());
        return absl::OkStatus();
      }
      default: return absl::UnimplementedError("a command of another version");
    }
  }

  static absl::Status Save(train::RankGroup& group, const proto::SaveCommand& command,
                           proto::WorkerAnswer* answer) {
    if (!command.temporary_path().empty()) {
      WEIR_ASSIGN_OR_RETURN(auto parts, group.SaveShards(StateSetOf(command.everything()),
                                                         command.temporary_path(), command.path()));
      AddParts(parts, answer);
      return absl::OkStatus();
    }
    WEIR_ASSIGN_OR_RETURN(train::ShardBatch batch,
                          train::ReadShards(group.session(), StateSetOf(command.everything()),
                                            command.begin(), command.bytes_max()));
    AddParts(batch.parts, answer);
    AddPieces(&batch, answer);
    return absl::OkStatus();
  }

  static void AddNonfinite(const std::map<std::string, std::string>& nonfinite,
                           proto::WorkerAnswer* answer) {
    for (const auto& [name, found] : nonfinite) {
      proto::PartFact* part = answer->add_part();
      part->set_name(name);
      part->set_nonfinite(found);
    }
  }

  static absl::Status Checkpoint(train::RankGroup& group, const proto::CheckpointCommand& command,
                                 proto::WorkerAnswer* answer) {
    train::ShardSave& shards = group.shards();
    switch (command.act_case()) {
      case proto::CheckpointCommand::kProbe:
        answer->set_sees_folder(::access(command.probe().folder().c_str(), W_OK | X_OK) == 0);
        return absl::OkStatus();
      case proto::CheckpointCommand::kBegin: {
        const auto& begin = command.begin();
        const train::ShardSaveOrder order{begin.directory(), begin.step(), begin.token(),
                                          begin.bytes_per_second(), begin.job_id()};
        return begin.sends() ? BeginSending(group, order, answer) : group.BeginShards(order);
      }
      case proto::CheckpointCommand::kLook: {
        if (command.look().lifts_pace()) shards.LiftPace();
        std::optional<absl::StatusOr<train::SavedShards>> saved =
            shards.Take(command.look().limit_ms());
        if (!saved.has_value()) return absl::OkStatus();
        WEIR_RETURN_IF_ERROR(saved->status());
        for (const store::ShardFileRecord& file : (*saved)->files)
          *answer->add_file() = store::ToProto(file);
        AddNonfinite((*saved)->nonfinite, answer);
        answer->set_is_done(true);
        return absl::OkStatus();
      }
      case proto::CheckpointCommand::kFetch: {
        WEIR_ASSIGN_OR_RETURN(train::SentBytes sent, shards.NextBytes(command.fetch().begin(),
                                                                      command.fetch().bytes_max()));
        answer->set_shard_bytes(std::move(sent.bytes));
        answer->set_end(sent.end);
        answer->set_is_last(sent.is_last);
        AddNonfinite(sent.nonfinite, answer);
        return absl::OkStatus();
      }
      case proto::CheckpointCommand::kGiveUp: shards.GiveUp(); return absl::OkStatus();
      case proto::CheckpointCommand::kPrepare: group.PrepareShards(); return absl::OkStatus();
      case proto::CheckpointCommand::ACT_NOT_SET: return absl::OkStatus();
    }
    return absl::UnimplementedError("a command of another version");
  }

  static absl::Status BeginSending(train::RankGroup& group, const train::ShardSaveOrder& order,
                                   proto::WorkerAnswer* answer) {
    WEIR_ASSIGN_OR_RETURN(const auto entries,
                          group.shards().BeginSending(group.session(), group.plan(), order));
    for (const auto& [rank, shards] : entries) {
      proto::CheckpointFile* file = answer->add_file();
      file->set_name(store::ShardFileName(rank.value()));
      for (const store::ShardEntry& entry : shards) {
        proto::CheckpointShard* shard = file->add_shard();
        shard->set_tensor(entry.tensor);
        shard->set_dtype(entry.dtype);
        shard->mutable_offset()->Add(entry.offset.begin(), entry.offset.end());
        shard->mutable_shape()->Add(entry.shape.begin(), entry.shape.end());
      }
    }
    return absl::OkStatus();
  }

  // Returns the maker of this worker's network for the messages of `role`.
  train::NetworkFactory NetworkOf(const proto::OpenCommand& command, uint16_t role) {
    transport::UcxTransportOptions ucx;
    ucx.lanes = LanesOf(command.lanes());
    ucx.interface = bundle_.interface();
    ucx.epoch = command.epoch();
    ucx.role = role;
    ucx.job_key = bundle_.job_key();
    ucx.checksum = command.checksums() ? transport::UcxTransportOptions::Checksum::kCrc32c
                                       : transport::UcxTransportOptions::Checksum::kNone;
    return [this, ucx](int num_ranks, const std::vector<RankId>& local_ranks) {
      return transport::MakeProcessNetwork(num_ranks, local_ranks, exchange_.get(), ucx);
    };
  }

  // Says from now on that this worker loads its ranks, and returns what tells how far it is.
  live::TellDoing TellsOpening() ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto say = [this](const std::string& text) {
      MutexLock lock(&mutex_);
      opening_ = text;
    };
    say("is loading its ranks");
    return [say](const live::Doing& doing) {
      say(absl::StrCat("is loading its ranks: ", live::TextOf(doing)));
    };
  }

  // Ends the ranks of an earlier epoch. What of them serves again stays: the data, the plans, and,
  // if this worker goes on with them, the states.
  absl::Status LeaveEpoch(const proto::OpenCommand& command) {
    train::RankGroup* const group = this->group();
    const bool keeps_mesh = command.layout() == states_.ranks_layout();
    WEIR_RETURN_IF_ERROR(
        states_.Leave(command, group == nullptr ? nullptr : &group->session(), resting_step_));
    resting_step_ = -1;
    if (group != nullptr) prepared_ = group->Prepared();
    if (!keeps_mesh) prepared_.reset();  // its plans are of another mesh
    CloseGroup();
    exchange_ = link_->ExchangeOf(command.epoch());
    MutexLock lock(&mutex_);
    group_epoch_ = command.epoch();
    return absl::OkStatus();
  }

  absl::Status Open(const proto::OpenCommand& command, proto::WorkerAnswer* answer) {
    WEIR_RETURN_IF_ERROR(LeaveEpoch(command));
    if (command.rank().empty()) return absl::OkStatus();  // it only gives states to others
    network_of_line_ = NetworkOf(command, kBuddyRole);
    const std::string where = absl::StrCat("worker ", bundle_.worker());
    train::RankGroupOptions options;
    for (const int32_t rank : command.rank()) options.ranks.emplace_back(rank);
    options.threads_per_device = command.threads_per_device();
    options.devices_here = command.devices_on_host();
    options.first_step = command.first_step();
    options.sample_offset = command.sample_offset();
    options.plan_id = command.plan_id();
    if (prepared_.has_value()) options.prepared = &*prepared_;
    options.epoch = command.epoch();
    options.on_nonfinite = OnNonfiniteOf(command.on_nonfinite());
    if (command.has_data()) options.data = command.data();
    if (command.has_rhythm()) {
      WEIR_ASSIGN_OR_RETURN(options.rhythm, RhythmOf(command.rhythm()));
    }
    if (command.has_evaluation_rhythm()) {
      WEIR_ASSIGN_OR_RETURN(options.evaluation_rhythm, RhythmOf(command.evaluation_rhythm()));
    }
    options.exchange = exchange_.get();
    options.network = [&](train::GroupRole role) {
      return NetworkOf(command, static_cast<uint16_t>(role));
    };
    options.tell = TellsOpening();
    absl::StatusOr<std::unique_ptr<train::RankGroup>> group =
        train::RankGroup::Open(command.job(), options);
    if (group.ok() && command.goes_on() && command.layout() == command.states_layout())
      WEIR_RETURN_IF_ERROR(states_.PutInto(&(*group)->session()));
    if (group.ok()) KeepActs((*group)->session());
    MutexLock lock(&mutex_);
    opening_.clear();
    if (!group.ok()) return group.status();
    // A failure is better now than when hours of work must be saved.
    WEIR_RETURN_IF_ERROR(limits::CheckRoomForFiles(where, kDescriptorsMin));
    group_ = *std::move(group);
    if (!abort_.ok()) group_->Stop(abort_);
    if (epoch_ != command.epoch()) group_->Stop(absl::UnavailableError("the epoch has ended"));
    answer->set_plan_id(group_->plan().plan_id);
    answer->set_processor(kernels::ProcessorKernels());
    answer->set_threads_per_device(group_->threads_per_device());
    answer->set_bytes_per_device(group_->bytes_per_device());
    answer->set_evaluation_batches(group_->evaluation_batches());
    answer->set_data(group_->dataset().Describe());
    AddInputFiles(command.input_file(), answer);
    if (command.tells_shards()) AddShards(group_->session(), answer);
    AddStates(group_->States(train::StateSet::kAll), answer);
    return absl::OkStatus();
  }

  train::GenerationRanks* generation_ranks() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return generation_.get();
  }

  // Returns what of the session of new ranks depends on this worker.
  absl::StatusOr<train::JobSessionOptions> SessionFor(const proto::OpenCommand& open,
                                                      uint16_t role) {
    train::JobSessionOptions session;
    for (const int32_t rank : open.rank()) session.ranks.emplace_back(rank);
    session.threads_per_device = open.threads_per_device();
    session.devices_here = open.devices_on_host();
    session.plan_id = open.plan_id();
    session.epoch = open.epoch();
    session.role = role;
    if (exchange_ == nullptr) exchange_ = link_->ExchangeOf(open.epoch());
    session.network = NetworkOf(open, session.role);
    session.exchange = exchange_.get();
    WEIR_ASSIGN_OR_RETURN(session.rhythm, RhythmOf(open.rhythm()));
    session.tell = TellsOpening();
    return session;
  }

  train::OutputRanks* output_ranks() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return outputs_.get();
  }

  absl::Status OpenForOutputs(const proto::OutputsCommand& command, proto::WorkerAnswer* answer) {
    WEIR_ASSIGN_OR_RETURN(train::JobSessionOptions session, SessionFor(command.open(), 0));
    train::OutputRanks* ranks = nullptr;
    {
      MutexLock lock(&mutex_);
      outputs_ = std::make_unique<train::OutputRanks>();
      if (!abort_.ok()) outputs_->Stop(abort_);
      ranks = outputs_.get();
    }
    const absl::Status opened = OpenOutputs(command, std::move(session), ranks, answer);
    MutexLock lock(&mutex_);
    opening_.clear();
    return opened;
  }

  absl::Status OpenGeneration(const proto::GenerationCommand& command,
                              proto::WorkerAnswer* answer) {
    WEIR_ASSIGN_OR_RETURN(const train::GenerationPlan plan, GenerationPlanOf(command));
    const proto::OpenCommand& open = command.open();
    WEIR_ASSIGN_OR_RETURN(train::JobSessionOptions session,
                          SessionFor(open, static_cast<uint16_t>(plan)));
    train::GenerationRanks* ranks = nullptr;
    {
      MutexLock lock(&mutex_);
      if (generation_ == nullptr) generation_ = std::make_unique<train::GenerationRanks>();
      if (!abort_.ok()) generation_->Stop(abort_);
      ranks = generation_.get();
    }
    const absl::Status opened = ranks->Open(plan, open.job(), std::move(session));
    {
      MutexLock lock(&mutex_);
      opening_.clear();
    }
    WEIR_RETURN_IF_ERROR(opened);
    const train::JobSession& of_plan = ranks->opened(plan);
    answer->set_plan_id(of_plan.plan->plan_id);
    answer->set_processor(kernels::ProcessorKernels());
    answer->set_threads_per_device(of_plan.threads_per_device);
    answer->set_has_logits(ranks->HasLogits(plan));
    AddInputFiles(open.input_file(), answer);
    AddStates(train::StatesOf(*of_plan.session, train::StateSet::kWeights), answer);
    return absl::OkStatus();
  }

  const proto::WorkerBundle bundle_;
  std::ostream& log_;
  const pid_t starter_pid_;
  Mutex starter_mutex_;
  launch::SilentProcess starter_ ABSL_GUARDED_BY(starter_mutex_);
  bool has_told_of_starter_ ABSL_GUARDED_BY(starter_mutex_) = false;
  std::unique_ptr<trace::KeptActs> kept_acts_;  // null: there is no memory for them, or no need
  // The serving thread's.
  train::NetworkFactory network_of_line_;  // to the buddy, in this epoch
  int64_t resting_step_ = -1;  // the steps done of the ranks, if they are at rest; -1: they are not
  // Of the last steps that were run to their end. The starter may not have heard of them.
  std::map<int64_t, train::StepMetrics> reported_;
  std::optional<train::PreparedTraining> prepared_;  // by an earlier epoch
  std::unique_ptr<transport::Exchange> exchange_;    // of the group and the line; outlives them
  WorkerStates states_;
  // The serving thread alone makes and ends the ranks; the link's thread uses them under the mutex.
  // At most one of the three is there: a job trains, generates or gives outputs.
  Mutex mutex_;
  std::unique_ptr<train::RankGroup> group_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<train::GenerationRanks> generation_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<train::OutputRanks> outputs_ ABSL_GUARDED_BY(mutex_);
  std::string opening_
      ABSL_GUARDED_BY(mutex_);  // what the loading of ranks does; empty: none goes on
  int beats_with_fault_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status abort_ ABSL_GUARDED_BY(mutex_);
  uint32_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;        // of the job
  uint32_t group_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of the group, or of the group to be
  CondVar aborted_;                                   // or the epoch has ended
  std::unique_ptr<control::WorkerLink>
      link_;  // destroyed first, because its thread calls the members above
};

}  // namespace

absl::Status RunWorker(std::istream& bundle, std::ostream& log) {
  launch::KeepMemoryOutOfCoreDumps();  // the core would contain a worker's key
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);  // a person who hangs up asks the starter to end the job
  // A worker reads messages from others for its whole life, and needs no program. It works as well
  // on a kernel that cannot forbid programs.
  sandbox::ForbidPrograms();
  std::string bytes((std::istreambuf_iterator<char>(bundle)), {});
  proto::WorkerBundle parsed;
  if (!parsed.ParseFromString(bytes) || parsed.coordinator_address().empty()) {
    return Rejected({"W0094", "weir worker", "what its starter writes to its standard input",
                     absl::StrCat(bytes.size(), " bytes of something else"),
                     "weir train --processes N starts workers"});
  }
  // gRPC waits for ever for a thread that it does not get.
  const std::string where = absl::StrCat("worker ", parsed.worker());
  WEIR_RETURN_IF_ERROR(limits::CheckRoomForThreads(where, kThreadsMin));
  WEIR_RETURN_IF_ERROR(limits::CheckRoomForAddresses(where, kAddressesMin));
  return Worker(std::move(parsed), log).Run();
}

}  // namespace weir::fleet
