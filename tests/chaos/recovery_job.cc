#include "tests/chaos/recovery_job.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/update_rate.h"
#include "runtime/store/batch_position.h"
#include "runtime/store/checkpoint_index.h"
#include "tests/chaos/recovery_buddies.h"
#include "tests/chaos/recovery_checkpoints.h"
#include "tests/chaos/recovery_memory.h"
#include "tests/chaos/recovery_scenario.h"
#include "tests/chaos/recovery_world.h"
#include "tools/fleet/epoch_start.h"
#include "tools/fleet/host_places.h"
#include "tools/fleet/mesh_change.h"
#include "tools/fleet/recovery_plan.h"
#include "tools/job/fewer_replicas.h"
#include "tools/launch/growth_policy.h"
#include "tools/launch/restart_policy.h"

namespace weir::chaos {
namespace {

constexpr int64_t kMoveBytesMax = 56;
constexpr uint64_t kBurstMax = 3;
constexpr uint64_t kJobSeed = 7;

using Kind = VirtualCommand::Kind;

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
        world_({play.seed, scenario_.faults, scenario_.poisoned_step, scenario_.poison_signal,
                play.tells}),
        buddies_(&world_),
        checkpoints_(&world_) {}

  RecoveryOutcome Play() {
    if (play_.tells) world_.TellStarter(ToText(scenario_));
    for (bool is_over = false; !is_over;) {
      world_.StartStarter();
      Live();
      is_over = !world_.starter_is_gone() || Failed();
      checkpoints_.Drop();
      if (is_over) continue;
      ++outcome_.resumes;
      if (scenario_.changes_at_resume) ChangeAtResume(&scenario_);
    }
    outcome_.violation = world_.violation();
    outcome_.story = world_.story();
    outcome_.events = world_.now();
    outcome_.faults = world_.num_faults();
    outcome_.fenced = world_.num_fenced();
    outcome_.hosts_lost = world_.num_hosts_lost();
    outcome_.moved_workers = world_.num_moved();
    outcome_.buddy_copies = buddies_.num_arrived();
    outcome_.commits = checkpoints_.num_commits();
    return std::move(outcome_);
  }

 private:
  bool Failed() const { return !world_.violation().empty(); }
  bool Ends() const { return world_.starter_is_gone() || Failed(); }
  void Violate(const std::string& what) {
    if (!world_.starter_is_gone()) world_.Violate(what);
  }
  int64_t SamplesAt(int64_t step) const {
    return store::SamplesUsed(sample_offset_, step, samples_per_step_);
  }

  // --- The starter: weir train --resume (tools/cli) ---

  void Live() {
    JobStart start = FindStart();
    launch::RestartPolicy policy(scenario_.limits);
    policy_ = &policy;
    launch::GrowthPolicy growth(scenario_.growth);
    growth_ = &growth;
    last_failure_.reset();
    failure_times_.clear();
    grown_at_.reset();
    returned_at_.clear();
    lost_again_ = 0;
    job_ = JobOf(scenario_);
    samples_per_step_ = SamplesPerStep(job_, scenario_);
    num_processes_ = scenario_.layout.num_workers();
    leaves_out_lost_ = false;
    lost_hosts_.clear();
    changed_.reset();
    while (!Ends()) {
      refusal_.clear();
      is_noted_ = false;
      const absl::Status trained = TrainOnce(start);
      checkpoints_.Drop();
      if (Ends()) return;
      if (trained.ok()) {
        if (const std::string failure = world_.EndFleet(); !failure.empty())
          Violate(absl::StrCat("the job is done and reports ", failure));
        checkpoints_.CheckFolder();
        return;
      }
      if (is_noted_ && !RanksAreGone(trained) && !absl::IsResourceExhausted(trained))
        return Violate(
            absl::StrCat("a recovery ends with an error of its own: ", trained.message()));
      if (is_lacking_hosts_) refusal_ = "a lost host must come";
      if (refusal_.empty() && !is_noted_ && !NoteFailure(trained)) return;
      world_.EndFleet();
      lost_hosts_ = world_.hosts().lost();
      if (refusal_.empty()) MakeSmallerForRestart();
      if (!refusal_.empty()) {
        outcome_.refusal = refusal_;
        world_.TellStarter(absl::StrCat("the job ends: ", refusal_));
        checkpoints_.CheckFolder();
        return;
      }
      ++outcome_.restarts;
      changed_.reset();
      if (checkpoints_.saved() >= 0) start = StartFrom(checkpoints_.Check(checkpoints_.saved()));
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

  // Decides after a failure whether the processes that live go on, and with which mesh
  // (tools/cli/cli_train.cc).
  bool GoesOn(const absl::Status& status) {
    is_noted_ = true;
    if (!NoteFailure(status)) return false;
    const RecoveryWorld::Foreseen foreseen = world_.Foresee();
    const bool has_room =
        !world_.hosts().are_used() || world_.hosts().HasRoom(world_.workers(), {});
    const bool must_shrink = !refusal_.empty() || !has_room || changed_.has_value();
    const fleet::MeshAfterLoss mesh = fleet::ChooseMesh({.may_start_anew = refusal_.empty(),
                                                         .have_places = foreseen.have_places,
                                                         .is_changing = changed_.has_value()});
    if ((mesh == fleet::MeshAfterLoss::kShrinks) != must_shrink) {
      Violate(must_shrink ? "the mesh stays though the lost processes do not come back"
                          : "the mesh becomes smaller though the lost processes come back");
    }
    if (mesh == fleet::MeshAfterLoss::kStays) return true;
    if (!MakeSmaller(foreseen.ranks_left)) return false;
    NoteSmaller(foreseen.lost);
    return true;
  }

  bool MakeSmaller(int ranks_left) {
    if (scenario_.min_devices == 0) return false;
    const std::optional<job::FewerReplicas> smaller =
        job::WithFewerReplicas(JobOf(scenario_), ranks_left, scenario_.min_devices);
    const int32_t most = MostReplicas(ranks_left);
    const int64_t taken = smaller.has_value() ? smaller->job.mesh().axis(0).size() : 0;
    if (taken != most) {
      Violate(absl::StrCat("the job goes on with ", taken, " replicas; ", ranks_left,
                           " devices are left for ", most));
    }
    if (!smaller.has_value()) return false;
    num_processes_ = fleet::NumProcessesFor(
        smaller->devices, static_cast<int>(facts_->ranks_of.size()), world_.num_ranks_at_start());
    leaves_out_lost_ = true;
    job_ = smaller->job;
    changed_ = job_;
    world_.TellStarter(absl::StrCat("the job becomes smaller: ",
                                    job::FewerReplicasText(JobOf(scenario_), smaller->job)));
    return true;
  }

  // Returns the most replicas, fewer than the job has, that so many devices can hold; 0: none.
  int32_t MostReplicas(int ranks_left) const {
    const RecoveryLayout& whole = scenario_.layout;
    int32_t most = 0;
    for (int32_t replicas = 1; replicas < whole.dp; ++replicas) {
      const int32_t devices = replicas * whole.tp;
      if (whole.dp % replicas == 0 && devices <= ranks_left && devices >= scenario_.min_devices)
        most = replicas;
    }
    return most;
  }

  // Makes the job smaller for its next start, if no host takes the place of a lost one.
  void MakeSmallerForRestart() {
    const bool lacks_hosts = world_.hosts().are_used() && !world_.workers().empty() &&
                             !world_.hosts().PlacesFromNowOn(world_.workers(), {}).has_value();
    if (lacks_hosts) MakeSmaller(world_.NumRanksLeft());
  }

  // Counts the failures anew, and compares the policy's decision with the count.
  void CheckPolicy(const launch::JobFailure& failure) {
    const bool is_same = last_failure_.has_value() && last_failure_->who == failure.who &&
                         last_failure_->what == failure.what &&
                         last_failure_->where == failure.where &&
                         last_failure_->step == failure.step;
    last_failure_ = failure;
    same_in_a_row_ = is_same ? same_in_a_row_ + 1 : 1;
    const int last_same = failure.origin == launch::FailureOrigin::kOutside ? 3 : 2;
    failure_times_.push_back(failure.time_ms);
    const auto num_recent = std::count_if(
        failure_times_.begin(), failure_times_.end(),
        [&](int64_t time_ms) { return time_ms + scenario_.limits.window_ms >= failure.time_ms; });
    const bool must_end = same_in_a_row_ >= last_same || num_recent > scenario_.limits.restarts_max;
    if (must_end == !refusal_.empty()) return;
    Violate(
        absl::StrCat(must_end ? "the job goes on after failure " : "the job ends after failure ",
                     num_recent, " of at most ", scenario_.limits.restarts_max, " in the window",
                     ", the same one ", same_in_a_row_, " times in a row"));
  }

  static JobStart StartFrom(const RecoveryCheckpoints::Found& found) {
    return {found.step, found.samples, CheckpointPath(found.step)};
  }

  JobStart FindStart() {
    const std::optional<RecoveryCheckpoints::Found> last = checkpoints_.FindLast();
    return last.has_value() ? StartFrom(*last) : JobStart();
  }

  // --- The trainer (tools/train) ---

  absl::Status TrainOnce(const JobStart& start) {
    start_ = start;
    checkpoints_.Open(scenario_.retention);
    steps_done_ = start.step;
    keep_is_due_ = true;
    is_changing_ = is_lacking_hosts_ = grows_ = seeks_hosts_ = false;
    has_step_ = true;
    sample_offset_ = store::SampleOffsetBehind(start.samples, start.step, samples_per_step_);
    const RecoveryLayout layout = LayoutOf(job_, scenario_, num_processes_);
    TakeFacts(FactsOf(scenario_, layout, layout.RanksOf()));
    started_ = {job_, num_processes_, leaves_out_lost_, facts_->ranks_of};
    growth_->NoteStart();
    grown_at_.reset();
    returned_at_.clear();
    world_.Enter(RecoveryPhase::kStart);
    WEIR_RETURN_IF_ERROR(StartFleet());
    in_memory_ = {facts_->ranks_of, facts_->shards_of, fleet::LoneShardsOf()};
    mesh_ = world_.epoch();
    WEIR_RETURN_IF_ERROR(world_.CallAll(OpenAt(start.step)).status());
    if (scenario_.is_elastic) {
      buddies_.Open(scenario_.buddy_every, scenario_.updates, in_memory_);
      WEIR_RETURN_IF_ERROR(JoinBuddies());
    }
    WEIR_RETURN_IF_ERROR(LoadFiles());
    absl::Status status = RunToEnd();
    while (RanksAreGone(status) && scenario_.is_elastic && !Ends() && GoesOn(status)) {
      status = Recover();
      if (status.ok()) status = RunToEnd();
    }
    epoch_ = std::max(epoch_, world_.epoch());
    return status;
  }

  // Runs all steps, and writes the last checkpoint.
  absl::Status RunToEnd() {
    WEIR_RETURN_IF_ERROR(RunSteps());
    is_noted_ = false;
    changed_.reset();  // also if no step was left to be done again
    WEIR_RETURN_IF_ERROR(WriteLast());
    CheckStates("at the end");
    return absl::OkStatus();
  }

  absl::Status StartFleet() {
    RecoveryWorld::Places places = {scenario_.hosts, {}, lost_hosts_};
    if (!places.listed.empty()) {
      auto host_of =
          leaves_out_lost_
              ? fleet::PlaceOnLiving(places.listed, lost_hosts_, num_processes_)
              : fleet::PlaceAtStart(places.listed, scenario_.spares, lost_hosts_, num_processes_);
      if (!host_of.ok()) {
        is_lacking_hosts_ = true;
        if (NumPlacesLeft() >= num_processes_)
          Violate(absl::StrCat("the job has no places: ", host_of.status().message()));
        return host_of.status();
      }
      places.host_of = *std::move(host_of);
    }
    const absl::Status started = world_.StartFleet(facts_, ++epoch_, places);
    is_lacking_hosts_ = absl::IsFailedPrecondition(started);
    return started;
  }

  // Returns for how many processes the hosts have room that are not lost.
  int NumPlacesLeft() const {
    int count = 0;
    for (const HostId host : scenario_.hosts.ids()) {
      if (lost_hosts_.count(host) > 0) continue;
      const int slots = scenario_.hosts[host].slots;
      count += slots > 0 ? slots : num_processes_;
    }
    return count;
  }

  void TakeFacts(std::shared_ptr<const WorkerFacts> facts) {
    facts_ = std::move(facts);
    for (const std::vector<RankId>& ranks : facts_->ranks_of) {
      if (ranks.size() > static_cast<size_t>(scenario_.layout.ranks_per_worker))
        Violate(absl::StrCat("a process has ", ranks.size(), " ranks, and room for ",
                             scenario_.layout.ranks_per_worker));
    }
  }

  VirtualCommand OpenAt(int64_t step) const {
    VirtualCommand open;
    open.kind = Kind::kOpen;
    open.epoch = world_.epoch();
    open.step = step;
    open.sample_offset = sample_offset_;
    open.samples_per_step = SamplesPerStep(job_, scenario_);
    open.facts = facts_;
    open.layout = open.states_layout = mesh_;
    return open;
  }

  absl::Status JoinBuddies() {
    if (!buddies_.is_on()) return absl::OkStatus();
    world_.Enter(RecoveryPhase::kJoin);
    return world_.Call(buddies_.Join(&in_memory_)).status();
  }

  // Loads the last checkpoint of this run, or that of its start.
  absl::Status LoadFiles() {
    const std::string path =
        checkpoints_.saved() >= 0 ? CheckpointPath(checkpoints_.saved()) : start_.path;
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
           step - std::max(start_.step, checkpoints_.begun()) >= scenario_.checkpoint_every;
  }

  absl::Status RunSteps() {
    while (steps_done_ < scenario_.steps) {
      WEIR_RETURN_IF_ERROR(checkpoints_.Look());
      WEIR_RETURN_IF_ERROR(GrowIfDue());
      VirtualCommand run;
      run.kind = Kind::kRun;
      run.step = 1;
      int64_t most = static_cast<int64_t>(1 + world_.Draw(kBurstMax));
      if (buddies_.is_on()) most = std::min(most, buddies_.StepsToNext(steps_done_));
      while (run.step < most && steps_done_ + run.step < scenario_.steps &&
             !IsDue(steps_done_ + run.step))
        ++run.step;
      run.keeps_copy = scenario_.is_elastic && KeepIsDue();
      run.sends_copy = run.keeps_copy && buddies_.is_on();
      if (run.sends_copy) buddies_.NoteBegun(steps_done_);
      world_.Enter(RecoveryPhase::kRun);
      WEIR_ASSIGN_OR_RETURN(const auto answers, world_.CallAll(run));
      changed_.reset();  // a step is done again
      has_step_ = true;
      if (run.keeps_copy) keep_is_due_ = false;
      steps_done_ += run.step;
      if (buddies_.is_on()) buddies_.NoteRun(answers, in_memory_, mesh_);
      if (IsDue(steps_done_)) WEIR_RETURN_IF_ERROR(WriteOnTheWay());
    }
    return absl::OkStatus();
  }

  bool KeepIsDue() {
    if (!scenario_.updates.IsBetweenUpdates(steps_done_)) return false;
    if (buddies_.is_on()) return buddies_.IsDue(steps_done_);
    return keep_is_due_ || world_.Draw(2) == 0;
  }

  // Checks that all ranks are at rest after the steps done, with the right values.
  void CheckStates(const std::string& when) {
    if (Ends()) return;
    const int64_t samples = SamplesAt(scenario_.updates.RoundDown(steps_done_));
    for (const WorkerId worker : world_.workers()) {
      const VirtualGroup* const group = world_.GroupOf(worker);
      if (group == nullptr) continue;  // its process has just died
      if (group->steps_done != steps_done_) {
        return Violate(absl::StrCat(when, " worker ", worker, " is at step ", group->steps_done,
                                    " and the job at step ", steps_done_));
      }
      for (const RankId rank : facts_->ranks_of[worker]) {
        for (size_t i = 0; i < facts_->shards_of[rank].size(); ++i) {
          const std::string wrong =
              CompareValues(facts_->shards_of[rank][i], group->values[rank][i], samples);
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
    // All ranks may have written their parts of a checkpoint.
    if (const absl::Status ended = checkpoints_.Await(); !ended.ok() && Ends()) return ended;
    const bool changes = changed_.has_value();
    if (is_changing_ && !changes) Violate("the mesh stays in the middle of a change");
    grows_ = false;
    WEIR_RETURN_IF_ERROR(
        world_.BeginEpoch(changes ? RecoveryWorld::Replace::kNone : RecoveryWorld::Replace::kAll));
    return GoOn(changes);
  }

  // Lets all workers of the epoch that has begun go on.
  absl::Status GoOn(bool changes) {
    ++outcome_.epochs;
    has_step_ = false;
    WEIR_ASSIGN_OR_RETURN(const fleet::RecoveryPlan plan, PlanFromMemory(changes));
    const int64_t file_step = std::max(checkpoints_.saved(), start_.step);
    const fleet::EpochStart start = fleet::ChooseStart(plan, file_step);
    if (start.step < file_step)
      Violate(absl::StrCat("the job goes back to step ", start.step, ", behind the checkpoint of ",
                           file_step));
    world_.TellStarter(absl::StrCat("the job goes on from step ", start.step, ", from ",
                                    start.has_states ? "memory" : "files"));
    if (changes) WEIR_RETURN_IF_ERROR(SpreadRanks());
    buddies_.GoOnFrom(start.has_states ? start.step : -1);
    world_.Enter(RecoveryPhase::kOpen);
    VirtualCommand open = OpenAt(start.step);
    if (changes) open.layout = world_.epoch();
    IdVector<WorkerId, VirtualCommand> opens(facts_->ranks_of.size(), open);
    for (const WorkerId worker : world_.workers())
      opens[worker].goes_on = start.has_states && plan.has_states[worker];
    WEIR_RETURN_IF_ERROR(world_.Call(opens).status());
    steps_done_ = start.step;
    keep_is_due_ = true;
    if (changes) {
      WEIR_RETURN_IF_ERROR(EnterMesh(start));
    } else if (start.has_states) {
      WEIR_RETURN_IF_ERROR(MoveStates(plan.transfers));
    }
    WEIR_RETURN_IF_ERROR(JoinBuddies());
    if (!start.has_states) return LoadFiles();
    CheckStates("after a recovery from memory");
    return absl::OkStatus();
  }

  absl::Status SpreadRanks() {
    is_changing_ = true;
    const RecoveryLayout layout = LayoutOf(job_, scenario_, num_processes_);
    WEIR_ASSIGN_OR_RETURN(auto ranks_of, world_.Spread(layout.num_ranks()));
    TakeFacts(FactsOf(scenario_, layout, std::move(ranks_of)));
    world_.SetFacts(facts_);
    return absl::OkStatus();
  }

  // Fills the shards of another mesh, if memory has the states, and goes on with it.
  absl::Status EnterMesh(const fleet::EpochStart& start) {
    if (start.has_states) {
      const auto transfers = fleet::PlanTransfers(standings_, in_memory_, start.step,
                                                  facts_->ranks_of, facts_->shards_of);
      if (!transfers.has_value()) {
        Violate("the ranks of the new mesh have states that nobody had");
        return absl::InternalError("no states");
      }
      std::vector<fleet::Transfer> own, others;
      for (const fleet::Transfer& transfer : *transfers)
        (transfer.giver == facts_->WorkerOf(transfer.to) ? own : others).push_back(transfer);
      WEIR_RETURN_IF_ERROR(MoveOwnStates(own));
      WEIR_RETURN_IF_ERROR(MoveStates(others));
      VirtualCommand rests;
      rests.kind = Kind::kTake;
      rests.is_last = true;
      WEIR_RETURN_IF_ERROR(world_.CallAll(rests).status());
    }
    world_.DismissIdle();
    // From here on the states of the old mesh count no more.
    in_memory_ = {facts_->ranks_of, facts_->shards_of, fleet::LoneShardsOf()};
    mesh_ = world_.epoch();
    is_changing_ = false;
    ++outcome_.mesh_changes;
    buddies_.Open(scenario_.buddy_every, scenario_.updates, in_memory_);
    return absl::OkStatus();
  }

  absl::StatusOr<fleet::RecoveryPlan> PlanFromMemory(bool changes) {
    world_.Enter(RecoveryPhase::kStanding);
    VirtualCommand command;
    command.kind = Kind::kStanding;
    WEIR_ASSIGN_OR_RETURN(const auto answers, world_.CallAll(command));
    standings_ = IdVector<WorkerId, fleet::WorkerStanding>(answers.size());
    std::vector<MemoryOfWorker> memory;
    for (const WorkerId worker : world_.workers()) {
      const VirtualAnswer& answer = answers[worker];
      standings_[worker] = fleet::StandingOn(mesh_, answer.meshes, answer.standing);
      memory.push_back({worker, answer.standing, answer.meshes});
    }
    buddies_.CheckKept(memory, mesh_);
    const auto may_begin_at = [this](int64_t step) {
      return scenario_.updates.IsBetweenUpdates(step);
    };
    const fleet::RecoveryPlan plan =
        changes ? fleet::PlanForOtherShards(standings_, in_memory_, may_begin_at)
                : fleet::PlanRecovery(standings_, in_memory_.ranks_of, in_memory_.shards_of,
                                      in_memory_.lone, may_begin_at);
    CheckPlan(plan, memory);
    return plan;
  }

  // Compares the plan with what memory has.
  void CheckPlan(const fleet::RecoveryPlan& plan, const std::vector<MemoryOfWorker>& memory) {
    int64_t last = -1;
    for (const int64_t step : StepsIn(memory)) {
      if (scenario_.updates.IsBetweenUpdates(step) && HasAll(step, in_memory_, mesh_, memory))
        last = step;
    }
    if (plan.step == last) return;
    const auto text = [](int64_t step) {
      return step < 0 ? "no step" : absl::StrCat("step ", step);
    };
    Violate(absl::StrCat("memory has all states of ", text(last), ", and the plan is for ",
                         text(plan.step)));
  }

  absl::Status MoveOwnStates(const std::vector<fleet::Transfer>& transfers) {
    world_.Enter(RecoveryPhase::kMove);
    VirtualCommand take;
    take.kind = Kind::kTake;
    IdVector<WorkerId, VirtualCommand> takes(facts_->ranks_of.size(), take);
    for (const fleet::Transfer& transfer : transfers) {
      takes[transfer.giver].own_moves.push_back({transfer.from, transfer.to, transfer.name, 0,
                                                 transfer.bytes, transfer.giver, transfer.moved});
    }
    return world_.Call(takes).status();
  }

  absl::Status MoveStates(const std::vector<fleet::Transfer>& transfers) {
    world_.Enter(RecoveryPhase::kMove);
    VirtualCommand give, take;
    give.kind = Kind::kGive;
    take.kind = Kind::kTake;
    for (const std::vector<fleet::StateMove>& batch : fleet::BatchesOf(transfers, kMoveBytesMax)) {
      IdVector<WorkerId, VirtualCommand> gives(facts_->ranks_of.size(), give);
      IdVector<WorkerId, VirtualCommand> takes(facts_->ranks_of.size(), take);
      for (const fleet::StateMove& move : batch) {
        gives[move.giver].moves.push_back(move);
        takes[facts_->WorkerOf(move.to)].moves.push_back(move);
        outcome_.moved_bytes += move.bytes;
      }
      WEIR_ASSIGN_OR_RETURN(auto given, world_.Call(gives));
      IdVector<WorkerId, size_t> num_taken(given.size(), 0);
      for (const fleet::StateMove& move : batch) {
        const WorkerId from = move.giver;
        takes[facts_->WorkerOf(move.to)].data.push_back(
            std::move(given[from].given[num_taken[from]++]));
      }
      WEIR_RETURN_IF_ERROR(world_.Call(takes).status());
    }
    for (const fleet::Transfer& transfer : transfers) {
      if (transfer.source == fleet::Transfer::Source::kBuddy)
        outcome_.buddy_bytes += transfer.bytes;
    }
    return absl::OkStatus();
  }

  // --- Growth (tools/train/trainer.cc, tools/cli/cli_train.cc) ---

  // The mesh has become smaller, and the others live on.
  void NoteSmaller(const std::vector<WorkerId>& lost) {
    growth_->NoteSmaller(world_.now(), lost);
    smaller_at_ = world_.now();
    seeks_hosts_ = false;
    const auto is_recent = [this](int64_t at) {
      return smaller_at_ - at < scenario_.growth.window_ms;
    };
    bool is_again = false;
    for (const WorkerId worker : lost) {
      const auto returned = returned_at_.find(worker);
      is_again = is_again || (returned != returned_at_.end() && is_recent(returned->second));
    }
    if (is_again) {
      ++lost_again_;
      returned_at_.clear();
    } else if (grown_at_.has_value() && !is_recent(*grown_at_)) {
      lost_again_ = 0;
    }
    grown_at_.reset();
  }

  bool GrowsNow() {
    if (!policy_->HasRoom(world_.now())) return false;
    const bool takes_turn = growth_->TakesTurn(world_.now());
    if (!takes_turn && !seeks_hosts_) return false;
    seeks_hosts_ = false;
    if (world_.CanGrow()) return true;
    if (takes_turn) world_.SeekLostHosts();
    seeks_hosts_ = true;
    return false;
  }

  absl::Status GrowIfDue() {
    if (!scenario_.is_elastic || !has_step_) return absl::OkStatus();
    grows_ = grows_ || GrowsNow();
    if (!grows_ || !scenario_.updates.IsBetweenUpdates(steps_done_)) return absl::OkStatus();
    grows_ = false;
    WEIR_RETURN_IF_ERROR(checkpoints_.Await());
    world_.Enter(RecoveryPhase::kGrow);
    WEIR_RETURN_IF_ERROR(LetAllHaveStep());
    return Grow();
  }

  // Every worker copies the states of this step, and buddies get their copies.
  absl::Status LetAllHaveStep() {
    for (bool is_begun = false; !is_begun || buddies_.is_under_way();) {
      VirtualCommand run;
      run.kind = Kind::kRun;
      run.keeps_copy = !buddies_.is_under_way() && !is_begun;
      run.sends_copy = run.keeps_copy && buddies_.is_on();
      if (run.sends_copy) buddies_.NoteBegun(steps_done_);
      is_begun = is_begun || run.keeps_copy;
      WEIR_ASSIGN_OR_RETURN(const auto answers, world_.CallAll(run));
      if (buddies_.is_on()) buddies_.NoteRun(answers, in_memory_, mesh_);
    }
    return absl::OkStatus();
  }

  absl::Status Grow() {
    CheckGrowth();
    const int64_t steps_before = steps_done_;
    job_ = started_.job;
    num_processes_ = started_.num_processes;
    leaves_out_lost_ = started_.leaves_out_lost;
    changed_ = job_;
    const std::vector<WorkerId> returning = world_.WorkersAway();
    growth_->NoteBegun(world_.now(), returning);
    grown_at_ = world_.now();
    for (const WorkerId worker : returning) returned_at_[worker] = world_.now();
    WEIR_RETURN_IF_ERROR(world_.BeginGrowth());
    WEIR_RETURN_IF_ERROR(GoOn(/*changes=*/true));
    if (steps_done_ != steps_before) {
      Violate(absl::StrCat("the mesh grows after step ", steps_before, ", and goes back to step ",
                           steps_done_));
    }
    if (facts_->ranks_of != started_.ranks_of)
      Violate("the mesh has grown, and workers have other ranks than at the start");
    ++outcome_.growths;
    return absl::OkStatus();
  }

  // Counts again whether the mesh may grow now.
  void CheckGrowth() {
    const int64_t now = world_.now();
    const auto num_recent =
        std::count_if(failure_times_.begin(), failure_times_.end(),
                      [&](int64_t time_ms) { return time_ms + scenario_.limits.window_ms >= now; });
    if (num_recent > scenario_.limits.restarts_max)
      Violate(absl::StrCat("the mesh grows with ", num_recent, " failures in the window"));
    if (now - smaller_at_ < scenario_.growth.after_ms)
      Violate(absl::StrCat("the mesh grows ", now - smaller_at_, " ms after a loss"));
    if (lost_again_ > scenario_.growth.lost_again_max)
      Violate(absl::StrCat("the mesh grows though places were lost again ", lost_again_, " times"));
  }

  // --- Checkpoints (tools/train/run_checkpoints.cc) ---

  store::CheckpointFacts FactsOfNow() const {
    store::CheckpointFacts facts;
    facts.job = "recovery";
    facts.step = steps_done_;
    facts.optimizer_step = scenario_.updates.OptimizerStep(steps_done_);
    facts.cursor = store::DataCursor{SamplesAt(steps_done_), 0, kJobSeed, "samples", 0};
    facts.keys = {{"training", kJobSeed, 0}};
    return facts;
  }

  absl::Status WriteOnTheWay() {
    WEIR_RETURN_IF_ERROR(checkpoints_.Await());
    return checkpoints_.Begin(FactsOfNow());
  }

  absl::Status WriteLast() {
    WEIR_RETURN_IF_ERROR(checkpoints_.Await());
    const bool is_wanted = scenario_.checkpoint_every > 0 && checkpoints_.saved() != steps_done_ &&
                           scenario_.updates.IsBetweenUpdates(steps_done_);
    // The disk refuses one operation at a time.
    for (int attempt = 0; is_wanted && checkpoints_.saved() != steps_done_ && attempt < 8;
         ++attempt) {
      WEIR_RETURN_IF_ERROR(checkpoints_.Begin(FactsOfNow()));
      WEIR_RETURN_IF_ERROR(checkpoints_.Await());
    }
    if (is_wanted && checkpoints_.saved() != steps_done_)
      Violate("the last checkpoint cannot be written");
    return absl::OkStatus();
  }

  const RecoveryPlay play_;
  RecoveryScenario scenario_;
  RecoveryWorld world_;
  RecoveryOutcome outcome_;
  RecoveryBuddies buddies_;
  RecoveryCheckpoints checkpoints_;
  uint32_t epoch_ = 0;  // of the last start

  // These members belong to the present life of the starter.
  launch::RestartPolicy* policy_ = nullptr;
  launch::GrowthPolicy* growth_ = nullptr;
  std::string refusal_;
  std::optional<launch::JobFailure> last_failure_;
  int same_in_a_row_ = 0;  // the last failure, and those before it that are the same one
  std::vector<int64_t> failure_times_;
  bool is_noted_ = false;  // the policy knows of the last failure
  // The job as it is now, and how its next start begins.
  proto::Job job_;
  int64_t samples_per_step_ = 1;  // which fewer replicas keep
  int num_processes_ = 1;
  bool leaves_out_lost_ = false;  // lost hosts get no processes
  std::set<HostId> lost_hosts_;
  std::optional<proto::Job> changed_;  // the job with which it goes on, until a step is done
  // The mesh became smaller at the event smaller_at_, and has grown since at the event grown_at_.
  // lost_again_ counts how many times in a row workers were lost again soon after returned_at_.
  int64_t smaller_at_ = 0;
  std::optional<int64_t> grown_at_;
  std::map<WorkerId, int64_t> returned_at_;
  int lost_again_ = 0;

  // Of this start of the job.
  JobStart start_;
  int64_t steps_done_ = 0, sample_offset_ = 0;
  bool keep_is_due_ = true;
  bool has_step_ = true;      // a step is done since the last recovery
  bool grows_ = false;        // as soon as the run rests after an update
  bool seeks_hosts_ = false;  // lost hosts may come
  // The job as all processes started with it.
  struct Started {
    proto::Job job;
    int num_processes = 1;
    bool leaves_out_lost = false;
    IdVector<WorkerId, std::vector<RankId>> ranks_of;
  };
  Started started_;
  bool is_lacking_hosts_ = false;             // a host that must come is lost
  bool is_changing_ = false;                  // a change of the mesh has begun, and not ended
  std::shared_ptr<const WorkerFacts> facts_;  // of the ranks that are open, or are to be opened
  fleet::StateLayout in_memory_;              // where states are; in a change, on the old mesh
  uint32_t mesh_ = 0;                         // its number
  IdVector<WorkerId, fleet::WorkerStanding> standings_;
};

}  // namespace

RecoveryOutcome PlayRecovery(const RecoveryPlay& play) { return RecoveryJob(play).Play(); }

}  // namespace weir::chaos
