#include "tests/chaos/recovery_job.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/update_rate.h"
#include "runtime/store/batch_position.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_shards.h"
#include "runtime/store/pending_file.h"
#include "tests/chaos/recovery_scenario.h"
#include "tests/chaos/recovery_world.h"
#include "tools/fleet/epoch_start.h"
#include "tools/fleet/recovery_plan.h"
#include "tools/launch/restart_policy.h"

namespace weir::chaos {
namespace {

constexpr char kDirectory[] = "/data/run";
constexpr int64_t kMoveBytesMax = 40;
constexpr uint64_t kBurstMax = 3;
constexpr uint64_t kJobSeed = 7;

using Kind = VirtualCommand::Kind;

std::string PathOf(int64_t step) {
  return absl::StrCat(kDirectory, "/", store::StepFolderName(step));
}

bool RanksAreGone(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

// Where a start of the job begins.
struct JobStart {
  int64_t step = 0, samples = 0;
  std::string path;  // of the checkpoint; empty: from the first values
};

class RecoveryJob {
 public:
  explicit RecoveryJob(const RecoveryPlay& play)
      : play_(play),
        scenario_(DrawScenario(play.seed)),
        world_({play.seed, scenario_.faults, scenario_.poisoned_step, play.tells}) {}

  RecoveryOutcome Play() {
    if (play_.tells) world_.TellStarter(ToText(scenario_));
    for (bool is_over = false; !is_over;) {
      world_.StartStarter();
      Live();
      is_over = !world_.starter_is_gone() || Failed();
      pending_.reset();
      if (is_over) continue;
      ++outcome_.resumes;
      if (scenario_.changes_at_resume) ChangeAtResume(&scenario_);
    }
    outcome_.violation = world_.violation();
    outcome_.story = world_.story();
    outcome_.events = world_.now();
    outcome_.faults = world_.num_faults();
    outcome_.fenced = world_.num_fenced();
    return std::move(outcome_);
  }

 private:
  bool Failed() const { return !world_.violation().empty(); }
  bool Ends() const { return world_.starter_is_gone() || Failed(); }
  void Violate(const std::string& what) {
    if (!world_.starter_is_gone()) world_.Violate(what);
  }
  int64_t SamplesAt(int64_t step) const {
    return store::SamplesUsed(sample_offset_, step, scenario_.samples_per_step);
  }

  // --- The starter: weir train --resume (tools/cli) ---

  void Live() {
    JobStart start = FindStart();
    launch::RestartPolicy policy(scenario_.limits);
    policy_ = &policy;
    last_failure_.reset();
    failure_times_.clear();
    while (!Ends()) {
      refusal_.clear();
      const absl::Status trained = TrainOnce(start);
      pending_.reset();
      if (Ends()) return;
      if (trained.ok()) {
        if (const std::string failure = world_.EndFleet(); !failure.empty())
          Violate(absl::StrCat("the job is done and reports ", failure));
        CheckFolder();
        return;
      }
      if (refusal_.empty() && !NoteFailure(trained)) return;
      world_.EndFleet();
      if (!refusal_.empty()) {
        outcome_.refusal = refusal_;
        world_.TellStarter(absl::StrCat("the job ends: ", refusal_));
        CheckFolder();
        return;
      }
      ++outcome_.restarts;
      if (saved_ >= 0) start = StartFrom(saved_);
      world_.TellStarter(absl::StrCat("all processes start again, from step ", start.step));
    }
  }

  // Asks the policy about a failure. Returns false if the job has not lost a process: then nothing
  // can bring it back.
  bool NoteFailure(const absl::Status& status) {
    if (!RanksAreGone(status)) {
      Violate(absl::StrCat("the job ends with an error of its own: ", status.message()));
      return false;
    }
    std::optional<launch::JobFailure> failure = world_.ReportLoss();
    if (!failure.has_value()) {
      Violate(absl::StrCat("the job fails and no process was lost: ", status.message()));
      return false;
    }
    failure->step = steps_done_;
    refusal_ = policy_->Note(*failure);
    world_.TellStarter(absl::StrCat("the failure: ", failure->where, ", ", failure->what,
                                    ", after step ", failure->step));
    CheckPolicy(*failure);
    return true;
  }

  // Counts the failures anew, and compares the policy's decision with the count.
  void CheckPolicy(const launch::JobFailure& failure) {
    const bool is_same = last_failure_.has_value() && last_failure_->who == failure.who &&
                         last_failure_->what == failure.what &&
                         last_failure_->where == failure.where &&
                         last_failure_->step == failure.step;
    last_failure_ = failure;
    failure_times_.push_back(failure.time_ms);
    const auto num_recent = std::count_if(
        failure_times_.begin(), failure_times_.end(),
        [&](int64_t time_ms) { return time_ms + scenario_.limits.window_ms >= failure.time_ms; });
    const bool must_end = is_same || num_recent > scenario_.limits.restarts_max;
    if (must_end == !refusal_.empty()) return;
    Violate(
        absl::StrCat(must_end ? "the job goes on after failure " : "the job ends after failure ",
                     num_recent, " of at most ", scenario_.limits.restarts_max, " in the window",
                     is_same ? ", the same one twice" : ""));
  }

  JobStart StartFrom(int64_t step) {
    JobStart start{step, 0, PathOf(step)};
    const std::string problem = CheckCheckpoint(step, &start.samples);
    if (!problem.empty()) Violate(absl::StrCat("a committed checkpoint is unreadable: ", problem));
    return start;
  }

  // The checkpoint from which a person resumes (tools/checkpoint/find_whole.h).
  JobStart FindStart() {
    CheckFolder();
    store::FileSystem* const files = world_.starter_files();
    const std::vector<int64_t> committed = store::CommittedSteps(kDirectory, files);
    const auto latest = store::ReadLatest(kDirectory, files);
    if (Failed() || !latest.ok() || committed.empty()) return {};
    const std::vector<int64_t> steps = store::StepsToResume(committed, *latest);
    world_.TellStarter(absl::StrCat("a person resumes the checkpoint of step ", steps.front()));
    if (steps.front() < durable_)
      Violate(absl::StrCat("the run is resumed at step ", steps.front(),
                           " though the commit of step ", durable_, " has returned"));
    return StartFrom(steps.front());
  }

  // Checks all that is committed.
  void CheckFolder() {
    if (Ends()) return;
    world_.Enter(RecoveryPhase::kStart);
    store::FileSystem* const files = world_.starter_files();
    const std::vector<int64_t> committed = store::CommittedSteps(kDirectory, files);
    for (const int64_t step : committed) {
      int64_t samples = 0;
      if (const std::string problem = CheckCheckpoint(step, &samples); !problem.empty())
        return Violate(absl::StrCat("a committed checkpoint is unreadable: ", problem));
    }
    const auto latest = store::ReadLatest(kDirectory, files);
    if (!latest.ok()) return Violate(absl::StrCat("`latest`: ", latest.status().message()));
    if (latest->has_value() && !std::binary_search(committed.begin(), committed.end(), **latest))
      return Violate(absl::StrCat("`latest` names step ", **latest, ", of which there is none"));
    if (durable_ >= 0 && (!latest->has_value() || **latest < durable_))
      Violate(absl::StrCat("`latest` does not name step ", durable_, ", or a later one"));
  }

  // Returns what is wrong with the checkpoint of a step, and sets the samples of its cursor.
  std::string CheckCheckpoint(int64_t step, int64_t* samples) {
    const auto opened = store::CheckpointShards::Open(PathOf(step), world_.starter_files());
    if (!opened.ok()) return std::string(opened.status().message());
    const store::CheckpointShards& shards = **opened;
    for (size_t i = 0; i < shards.index().files.size(); ++i) {
      if (const absl::Status checked = shards.CheckFile(i); !checked.ok())
        return std::string(checked.message());
    }
    const store::CheckpointFacts& facts = shards.index().facts;
    if (!facts.cursor.has_value() ||
        facts.cursor->seal != store::CursorSeal(*facts.cursor, facts.step, facts.optimizer_step))
      return "its data cursor has another seal";
    *samples = facts.cursor->samples;
    for (const auto& [name, tensor] : shards.index().tensors) {
      if (const absl::Status checked = shards.CheckContent(name); !checked.ok())
        return std::string(checked.message());
      for (const store::ShardPlace& place : shards.ShardsOf(name)) {
        const store::ShardRecord& record = shards.shard(place);
        const auto bytes = shards.Bytes(place, 0, record.end - record.begin);
        if (!bytes.ok()) return std::string(bytes.status().message());
        const fleet::HeldState held{name, {DType::kI32, record.shape, record.offset, tensor.shape}};
        ShardValues values(static_cast<size_t>(NumElements(record.shape)));
        std::memcpy(values.data(), *bytes, values.size() * sizeof(values[0]));
        if (const std::string wrong = CompareValues(held, values, *samples); !wrong.empty())
          return absl::StrCat(PathOf(step), ": ", wrong);
      }
    }
    return "";
  }

  // --- The trainer (tools/train) ---

  absl::Status TrainOnce(const JobStart& start) {
    start_ = start;
    saved_ = begun_ = -1;
    steps_done_ = start.step;
    keep_is_due_ = true;
    sample_offset_ =
        store::SampleOffsetBehind(start.samples, start.step, scenario_.samples_per_step);
    facts_ = FactsOf(scenario_);
    world_.Enter(RecoveryPhase::kStart);
    WEIR_RETURN_IF_ERROR(world_.StartFleet(facts_, ++epoch_));
    VirtualCommand open = OpenAt(start.step);
    WEIR_RETURN_IF_ERROR(world_.CallAll(open).status());
    WEIR_RETURN_IF_ERROR(LoadFiles());
    absl::Status status = RunSteps();
    while (RanksAreGone(status) && scenario_.is_elastic && !Ends() && NoteFailure(status) &&
           refusal_.empty()) {
      status = Recover();
      if (status.ok()) status = RunSteps();
    }
    epoch_ = std::max(epoch_, world_.epoch());
    WEIR_RETURN_IF_ERROR(status);
    WEIR_RETURN_IF_ERROR(WriteLast());
    CheckStates("at the end");
    return absl::OkStatus();
  }

  VirtualCommand OpenAt(int64_t step) const {
    VirtualCommand open;
    open.kind = Kind::kOpen;
    open.epoch = world_.epoch();
    open.step = step;
    open.sample_offset = sample_offset_;
    open.samples_per_step = scenario_.samples_per_step;
    return open;
  }

  // Loads the last checkpoint of this run, or that of its start.
  absl::Status LoadFiles() {
    const std::string path = saved_ >= 0 ? PathOf(saved_) : start_.path;
    if (!path.empty()) {
      world_.Enter(RecoveryPhase::kLoad);
      VirtualCommand load;
      load.kind = Kind::kLoad;
      load.path = path;
      WEIR_RETURN_IF_ERROR(world_.CallAll(load).status());
      ++outcome_.loads;
    }
    CheckStates("after the states are loaded");
    return absl::OkStatus();
  }

  bool IsDue(int64_t step) const {
    return scenario_.checkpoint_every > 0 && step < scenario_.steps &&
           scenario_.updates.IsBetweenUpdates(step) &&
           step - std::max(start_.step, std::max(saved_, begun_)) >= scenario_.checkpoint_every;
  }

  absl::Status RunSteps() {
    while (steps_done_ < scenario_.steps) {
      if (begun_ >= 0) WEIR_RETURN_IF_ERROR(EndCheckpoint(Wait::kNo));
      VirtualCommand run;
      run.kind = Kind::kRun;
      run.step = 1;
      const int64_t most = static_cast<int64_t>(1 + world_.Draw(kBurstMax));
      while (run.step < most && steps_done_ + run.step < scenario_.steps &&
             !IsDue(steps_done_ + run.step))
        ++run.step;
      run.keeps_copy = scenario_.is_elastic && scenario_.updates.IsBetweenUpdates(steps_done_) &&
                       (keep_is_due_ || world_.Draw(2) == 0);
      world_.Enter(RecoveryPhase::kRun);
      WEIR_RETURN_IF_ERROR(world_.CallAll(run).status());
      if (run.keeps_copy) keep_is_due_ = false;
      steps_done_ += run.step;
      if (IsDue(steps_done_)) WEIR_RETURN_IF_ERROR(WriteOnTheWay());
    }
    return absl::OkStatus();
  }

  // Checks that all ranks are at rest after the steps done, with the right values.
  void CheckStates(const std::string& when) {
    if (Ends()) return;
    const int64_t samples = SamplesAt(scenario_.updates.RoundDown(steps_done_));
    for (const WorkerId worker : facts_.ranks_of.ids()) {
      const VirtualGroup* const group = world_.GroupOf(worker);
      if (group == nullptr) continue;  // its process has just died
      if (group->steps_done != steps_done_) {
        return Violate(absl::StrCat(when, " worker ", worker, " is at step ", group->steps_done,
                                    " and the job at step ", steps_done_));
      }
      for (const RankId rank : facts_.ranks_of[worker]) {
        for (size_t i = 0; i < facts_.shards_of[rank].size(); ++i) {
          const std::string wrong =
              CompareValues(facts_.shards_of[rank][i], group->values[rank][i], samples);
          if (!wrong.empty()) {
            return Violate(
                absl::StrCat(when, ", step ", steps_done_, ", rank ", rank, ": ", wrong));
          }
        }
      }
    }
  }

  // --- Recovery (tools/fleet/fleet_runner_recovery.cc) ---

  absl::Status Recover() {
    while (begun_ >= 0 && !Ends()) {  // all ranks may have written their parts of a checkpoint
      if (!EndCheckpoint(Wait::kYes).ok()) break;
    }
    WEIR_RETURN_IF_ERROR(world_.BeginEpoch());
    ++outcome_.epochs;
    WEIR_ASSIGN_OR_RETURN(const fleet::RecoveryPlan plan, PlanFromMemory());
    const int64_t file_step = saved_ >= 0 ? saved_ : start_.step;
    const fleet::EpochStart start = fleet::ChooseStart(plan, file_step);
    if (start.step < file_step)
      Violate(absl::StrCat("the job goes back to step ", start.step, ", behind the checkpoint of ",
                           file_step));
    world_.TellStarter(absl::StrCat("the job goes on from step ", start.step, ", from ",
                                    start.has_states ? "memory" : "files"));
    world_.Enter(RecoveryPhase::kOpen);
    IdVector<WorkerId, VirtualCommand> opens(facts_.ranks_of.size(), OpenAt(start.step));
    for (const WorkerId worker : opens.ids())
      opens[worker].goes_on = start.has_states && plan.has_states[worker];
    WEIR_RETURN_IF_ERROR(world_.Call(opens).status());
    steps_done_ = start.step;
    keep_is_due_ = true;
    if (!start.has_states) return LoadFiles();
    WEIR_RETURN_IF_ERROR(MoveStates(plan));
    CheckStates("after a recovery from memory");
    return absl::OkStatus();
  }

  absl::StatusOr<fleet::RecoveryPlan> PlanFromMemory() {
    world_.Enter(RecoveryPhase::kStanding);
    VirtualCommand command;
    command.kind = Kind::kStanding;
    WEIR_ASSIGN_OR_RETURN(const auto answers, world_.CallAll(command));
    IdVector<WorkerId, fleet::WorkerStanding> standings;
    for (const VirtualAnswer& answer : answers) standings.push_back(answer.standing);
    return fleet::PlanRecovery(
        standings, facts_.ranks_of, facts_.shards_of, {},
        [this](int64_t step) { return scenario_.updates.IsBetweenUpdates(step); });
  }

  absl::Status MoveStates(const fleet::RecoveryPlan& plan) {
    world_.Enter(RecoveryPhase::kMove);
    const auto worker_of = [this](RankId rank) {
      return WorkerId(rank.value() / scenario_.layout.ranks_per_worker);
    };
    VirtualCommand give, take;
    give.kind = Kind::kGive;
    take.kind = Kind::kTake;
    for (const std::vector<fleet::StateMove>& batch :
         fleet::BatchesOf(plan.transfers, kMoveBytesMax)) {
      IdVector<WorkerId, VirtualCommand> gives(facts_.ranks_of.size(), give);
      IdVector<WorkerId, VirtualCommand> takes(facts_.ranks_of.size(), take);
      for (const fleet::StateMove& move : batch) {
        gives[move.giver].moves.push_back(move);
        takes[worker_of(move.to)].moves.push_back(move);
        outcome_.moved_bytes += move.bytes;
      }
      WEIR_ASSIGN_OR_RETURN(auto given, world_.Call(gives));
      IdVector<WorkerId, size_t> num_taken(given.size(), 0);
      for (const fleet::StateMove& move : batch) {
        const WorkerId from = move.giver;
        takes[worker_of(move.to)].data.push_back(std::move(given[from].given[num_taken[from]++]));
      }
      WEIR_RETURN_IF_ERROR(world_.Call(takes).status());
    }
    return absl::OkStatus();
  }

  // --- Checkpoints (tools/train/run_checkpoints.cc, tools/fleet/fleet_checkpoint.cc) ---

  enum class Wait : uint8_t { kNo, kYes };

  absl::Status WriteOnTheWay() {
    while (begun_ >= 0) WEIR_RETURN_IF_ERROR(EndCheckpoint(Wait::kYes));
    return BeginCheckpoint();
  }

  absl::Status WriteLast() {
    while (begun_ >= 0) WEIR_RETURN_IF_ERROR(EndCheckpoint(Wait::kYes));
    const bool is_wanted = scenario_.checkpoint_every > 0 && saved_ != steps_done_ &&
                           scenario_.updates.IsBetweenUpdates(steps_done_);
    // The disk refuses one operation at a time.
    for (int attempt = 0; is_wanted && saved_ != steps_done_ && attempt < 8; ++attempt) {
      WEIR_RETURN_IF_ERROR(BeginCheckpoint());
      while (begun_ >= 0) WEIR_RETURN_IF_ERROR(EndCheckpoint(Wait::kYes));
    }
    if (is_wanted && saved_ != steps_done_) Violate("the last checkpoint cannot be written");
    return absl::OkStatus();
  }

  // A write that the disk refuses is a warning.
  absl::Status WarnOf(const absl::Status& status) {
    if (status.ok() || RanksAreGone(status)) return status;
    if (store::IsCannotWrite(status)) {
      world_.TellStarter(absl::StrCat("WARNING: no checkpoint: ", status.message()));
      return absl::OkStatus();
    }
    return status;
  }

  absl::Status BeginCheckpoint() {
    world_.Enter(RecoveryPhase::kSave);
    store::FileSystem* const files = world_.starter_files();
    VirtualCommand save;
    save.kind = Kind::kSave;
    save.path = kDirectory;
    save.step = steps_done_;
    save.token = files->NewToken();
    auto opened = store::PendingCheckpoint::Open(kDirectory, save.step, save.token,
                                                 store::PendingCheckpoint::Role::kMake, files);
    world_.EndStarterDisk();
    if (Ends()) return absl::CancelledError("the starter is gone");
    if (!opened.ok()) return WarnOf(opened.status());
    pending_ = *std::move(opened);
    parts_ = IdVector<WorkerId, bool>(facts_.ranks_of.size(), false);
    files_.clear();
    begun_ = save.step;
    if (const auto begun = world_.CallAll(save); !begun.ok()) return GiveUp(begun.status());
    return absl::OkStatus();
  }

  absl::Status GiveUp(const absl::Status& reason) {
    begun_ = -1;
    VirtualCommand command;
    command.kind = Kind::kGiveUp;
    if (!RanksAreGone(reason)) {
      const absl::Status told = world_.CallAll(command).status();
      if (RanksAreGone(told)) world_.TellStarter("a worker is lost as the checkpoint is given up");
    }
    pending_.reset();
    return WarnOf(reason);
  }

  absl::Status EndCheckpoint(Wait wait) {
    do {
      world_.Enter(RecoveryPhase::kSave);
      IdVector<WorkerId, VirtualCommand> looks(facts_.ranks_of.size());
      bool is_written = true;
      for (const WorkerId worker : looks.ids()) {
        if (!parts_[worker]) looks[worker].kind = Kind::kLook;
        is_written = is_written && parts_[worker];
      }
      if (is_written) return Commit();
      auto answers = world_.Call(looks);
      if (!answers.ok()) return GiveUp(answers.status());
      for (const WorkerId worker : looks.ids()) {
        VirtualAnswer& answer = (*answers)[worker];
        if (!answer.is_done) continue;
        parts_[worker] = true;
        for (store::ShardFileRecord& file : answer.files) files_.push_back(std::move(file));
      }
    } while (wait == Wait::kYes);
    return absl::OkStatus();
  }

  absl::Status Commit() {
    store::CheckpointFacts facts;
    facts.job = "recovery";
    facts.step = begun_;
    facts.optimizer_step = scenario_.updates.OptimizerStep(begun_);
    facts.cursor = store::DataCursor{SamplesAt(begun_), 0, kJobSeed, "samples", 0};
    facts.keys = {{"training", kJobSeed, 0}};
    const int64_t step = std::exchange(begun_, -1);
    world_.Enter(RecoveryPhase::kCommit);
    world_.BeginStarterDisk();
    if (Ends()) return absl::CancelledError("the starter is gone");
    absl::Status status;
    const auto index =
        store::MakeIndex(facts, RecoveryTensors(), std::move(files_), pending_->final_path());
    if (!index.ok()) {
      Violate(
          absl::StrCat("a checkpoint is committed before it is whole: ", index.status().message()));
    } else {
      status = pending_->Commit(*index, scenario_.retention).status();
    }
    world_.EndStarterDisk();
    if (Ends()) return absl::CancelledError("the starter is gone");
    pending_.reset();
    world_.Enter(RecoveryPhase::kRun);
    if (!status.ok()) return WarnOf(status);
    world_.TellStarter(absl::StrCat("the checkpoint of step ", step, " is committed"));
    ++outcome_.commits;
    saved_ = step;
    durable_ = std::max(durable_, step);
    return absl::OkStatus();
  }

  const RecoveryPlay play_;
  RecoveryScenario scenario_;
  RecoveryWorld world_;
  RecoveryOutcome outcome_;
  WorkerFacts facts_;
  uint32_t epoch_ = 0;  // of the last start

  // These members belong to the present life of the starter.
  launch::RestartPolicy* policy_ = nullptr;
  std::string refusal_;
  std::optional<launch::JobFailure> last_failure_;
  std::vector<int64_t> failure_times_;

  // Of this start of the job.
  JobStart start_;
  int64_t steps_done_ = 0, sample_offset_ = 0;
  int64_t saved_ = -1, begun_ = -1;  // steps of checkpoints
  bool keep_is_due_ = true;
  std::unique_ptr<store::PendingCheckpoint> pending_;
  IdVector<WorkerId, bool> parts_;  // that are written
  std::vector<store::ShardFileRecord> files_;
  int64_t durable_ = -1;  // the last step whose commit has returned
};

}  // namespace

RecoveryOutcome PlayRecovery(const RecoveryPlay& play) { return RecoveryJob(play).Play(); }

}  // namespace weir::chaos
