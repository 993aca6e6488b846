// The parts of FleetRunner that bring the ranks back after a worker was lost.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/fleet/epoch_start.h"
#include "tools/fleet/fleet_runner.h"
#include "tools/fleet/fleet_start.h"
#include "tools/fleet/metrics_of_answers.h"
#include "tools/fleet/piece_codec.h"
#include "tools/launch/placement.h"
#include "tools/train/prepare_training.h"

namespace weir::fleet {
namespace {

// Copies of the states take at most one part in so many of the time.
constexpr int64_t kKeepShare = 100;
// The bytes of states that move at once. Both ends and the starter hold them.
constexpr int64_t kMoveBytes = 16 << 20;
// The wait for copies before a process is replaced, and the time between two looks at them.
constexpr int64_t kBuddyWaitNs = 60'000'000'000;
constexpr auto kBuddyLook = std::chrono::milliseconds(2);

// Which end of a move a range is of.
enum class End : uint8_t { kGiver, kTaker };

void SetRange(const StateMove& move, End end, proto::ShardRange* range) {
  range->set_rank(end == End::kGiver ? move.from.value() : move.to.value());
  range->set_name(move.name);
  range->set_begin(move.begin);
  range->set_bytes(move.bytes);
  if (!move.moved.has_value()) return;
  *range->mutable_part() = SliceToProto(move.moved->part);
  *range->mutable_shard() =
      SliceToProto(end == End::kGiver ? move.moved->given : move.moved->taken);
}

// Returns the worker of each rank.
IdVector<RankId, WorkerId> WorkersOf(const Fleet& fleet) {
  IdVector<RankId, WorkerId> worker_of;
  for (const WorkerId worker : fleet.workers()) {
    for (const RankId rank : fleet.ranks_of(worker)) {
      if (!worker_of.Has(rank)) worker_of.resize(static_cast<size_t>(rank.value()) + 1);
      worker_of[rank] = worker;
    }
  }
  return worker_of;
}

}  // namespace

absl::StatusOr<IdVector<RankId, std::vector<HeldState>>> FleetRunner::ShardsFrom(
    const IdVector<WorkerId, proto::WorkerAnswer>& answers) const {
  IdVector<RankId, std::vector<HeldState>> shards_of(static_cast<size_t>(facts_.num_ranks));
  for (const proto::WorkerAnswer& answer : answers) {
    for (const proto::HeldShard& held : answer.held()) {
      const RankId rank(held.rank());
      if (!shards_of.Has(rank))
        return absl::InternalError(absl::StrCat("a worker holds rank ", rank));
      WEIR_ASSIGN_OR_RETURN(TensorSlice slice, SliceFrom(held.name(), held.slice()));
      shards_of[rank].push_back({held.name(), std::move(slice)});
    }
  }
  return shards_of;
}

absl::Status FleetRunner::TakeShards(const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  WEIR_ASSIGN_OR_RETURN(in_memory_.shards_of, ShardsFrom(answers));
  in_memory_.ranks_of = fleet_->ranks_of();
  // Gradients that wait for their update are part of no step's states.
  keeping_.is_on = updates_.delay == 0;
  if (!keeping_.is_on) {
    console_->Say(
        "WARNING: --on-failure elastic goes on from the last checkpoint, and not from memory, "
        "because gradients are delayed");
    return absl::OkStatus();
  }
  buddies_.Open(fleet_, job_.runtime().buddy_every(), updates_, in_memory_.shards_of, console_);
  WEIR_RETURN_IF_ERROR(buddies_.Join(in_memory_.shards_of));
  in_memory_.lone = buddies_.lone();
  return absl::OkStatus();
}

int64_t FleetRunner::StepsToNextCopy() const {
  return buddies_.is_on() ? buddies_.StepsToNext(steps_done_) : JobRunner::StepsToNextCopy();
}

bool FleetRunner::KeepIsDue() const {
  if (!keeping_.is_on || !updates_.IsBetweenUpdates(steps_done_)) return false;
  if (buddies_.is_on()) return buddies_.IsDue(steps_done_);
  return keeping_.is_due || clock_.NowNs() - keeping_.kept_ns >= kKeepShare * keeping_.took_ns;
}

void FleetRunner::NoteKept(const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  const bool is_first = keeping_.bytes == 0;
  keeping_.is_due = false;
  keeping_.kept_ns = clock_.NowNs();
  keeping_.took_ns = 0;
  bool all_keep = true;
  for (const WorkerId worker : fleet_->workers()) {
    const proto::WorkerAnswer& answer = answers[worker];
    all_keep = all_keep && answer.keep_ns() > 0;
    keeping_.took_ns = std::max(keeping_.took_ns, answer.keep_ns());
    keeping_.bytes = std::max(keeping_.bytes, answer.kept_bytes());
  }
  if (!is_first || (all_keep && buddies_.is_on())) return;  // the buddies say more
  console_->Say(all_keep
                    ? absl::StrCat("each process keeps a copy of its states in memory, at most ",
                                   BytesText(static_cast<double>(keeping_.bytes)), ", made in ",
                                   TimeText(static_cast<double>(keeping_.took_ns)))
                    : "WARNING: a process has no memory for a copy of its states, so the loss of "
                      "another may cost the steps since the last checkpoint");
}

absl::StatusOr<RecoveryPlan> FleetRunner::PlanFromMemory(
    Mesh mesh, std::map<int64_t, train::StepMetrics>* reported) {
  proto::WorkerCommand command;
  command.mutable_standing();
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet_->Call(command, Fleet::Watch::kNone));
  standings_ = IdVector<WorkerId, WorkerStanding>(answers.size());
  for (const WorkerId worker : fleet_->workers()) {
    const proto::WorkerAnswer& answer = answers[worker];
    WorkerStanding standing = {.kept_step = answer.kept_step(),
                               .resting_step = answer.resting_step(),
                               .older_kept_step = answer.older_kept_step(),
                               .guarded = {}};
    for (const proto::WholeCopyFact& copy : answer.whole_copy())
      standing.guarded.push_back({WorkerId(copy.charge()), copy.step()});
    standings_[worker] = StandingOn(
        layout_, {.ranks = answer.ranks_layout(), .copies = answer.copies_layout()}, standing);
  }
  *reported = MetricsOf(answers);
  reported->erase(reported->begin(), reported->lower_bound(steps_done_));
  // The steps of a call that failed may be done on all ranks, but a step whose report was lost with
  // a worker must be done again.
  const auto may_begin_at = [this, reported](int64_t step) {
    return updates_.IsBetweenUpdates(step) &&
           HasMetrics(*reported, steps_done_, step, metrics_of_every_step_);
  };
  return mesh != Mesh::kStays ? PlanForOtherShards(standings_, in_memory_, may_begin_at)
                              : PlanRecovery(standings_, in_memory_.ranks_of, in_memory_.shards_of,
                                             in_memory_.lone, may_begin_at);
}

// Lets each worker fill its shards from its own memory.
absl::Status FleetRunner::MoveOwnStates(const std::vector<Transfer>& transfers) {
  IdVector<WorkerId, proto::WorkerCommand> takes(fleet_->num_workers());
  for (const WorkerId worker : fleet_->workers()) takes[worker].mutable_take();
  for (const Transfer& transfer : transfers) {
    const StateMove move = {transfer.from,  transfer.to,    transfer.name, 0,
                            transfer.bytes, transfer.giver, transfer.moved};
    proto::TakeCommand* const take = takes[transfer.giver].mutable_take();
    SetRange(move, End::kGiver, take->add_own_from());
    SetRange(move, End::kTaker, take->add_own_range());
  }
  return fleet_->CallEach(takes, Fleet::Watch::kNone).status();
}

// Moves the parts from the workers that keep them, by way of this process, to the workers that hold
// them from now on.
absl::Status FleetRunner::MoveStates(const std::vector<Transfer>& transfers) {
  const IdVector<RankId, WorkerId> worker_of = WorkersOf(*fleet_);
  for (const std::vector<StateMove>& batch : BatchesOf(transfers, kMoveBytes)) {
    IdVector<WorkerId, proto::WorkerCommand> gives(fleet_->num_workers());
    IdVector<WorkerId, proto::WorkerCommand> takes(fleet_->num_workers());
    for (const WorkerId worker : fleet_->workers()) {
      gives[worker].mutable_give();
      takes[worker].mutable_take();
    }
    for (const StateMove& move : batch) {
      SetRange(move, End::kGiver, gives[move.giver].mutable_give()->add_range());
      SetRange(move, End::kTaker, takes[worker_of[move.to]].mutable_take()->add_range());
    }
    WEIR_ASSIGN_OR_RETURN(auto given, fleet_->CallEach(gives, Fleet::Watch::kNone));
    IdVector<WorkerId, int> num_taken(fleet_->num_workers(), 0);
    for (const StateMove& move : batch) {
      const WorkerId from = move.giver;
      if (num_taken[from] >= given[from].given_size())
        return absl::InternalError("a worker gives fewer states than it was asked for");
      takes[worker_of[move.to]].mutable_take()->add_data(
          std::move(*given[from].mutable_given(num_taken[from]++)));
    }
    WEIR_RETURN_IF_ERROR(fleet_->CallEach(takes, Fleet::Watch::kNone).status());
  }
  return absl::OkStatus();
}

// Fills the shards of another mesh, and goes on with it.
absl::Status FleetRunner::EnterMesh(IdVector<RankId, std::vector<HeldState>> shards_of,
                                    RecoveryPlan* plan) {
  if (plan->step >= 0) {
    std::optional<std::vector<Transfer>> transfers =
        PlanTransfers(standings_, in_memory_, plan->step, fleet_->ranks_of(), shards_of);
    if (!transfers.has_value())
      return absl::InternalError("the ranks of the new mesh have states that nobody had");
    const IdVector<RankId, WorkerId> worker_of = WorkersOf(*fleet_);
    std::vector<Transfer> own, others;
    for (const Transfer& transfer : *transfers) {
      (transfer.giver == worker_of[transfer.to] ? own : others).push_back(transfer);
      plan->bytes += transfer.bytes;
    }
    plan->transfers = *std::move(transfers);
    WEIR_RETURN_IF_ERROR(MoveOwnStates(own));
    WEIR_RETURN_IF_ERROR(MoveStates(others));
    proto::WorkerCommand rests;
    rests.mutable_take()->set_is_last(true);
    WEIR_RETURN_IF_ERROR(fleet_->Call(rests, Fleet::Watch::kNone).status());
  }
  for (const WorkerId worker : fleet_->DismissIdle()) dismissed_.insert(worker);
  return absl::OkStatus();
}

// Returns "from the memory of rank 3 (16.0 KiB)" for the transfers from that source; empty: there
// are none. Ranks are named as everywhere: as known_ranks, which may be of another mesh than that
// of the states.
std::string FleetRunner::GivenText(const RecoveryPlan& plan, Transfer::Source source) const {
  std::set<RankId> givers;
  int64_t bytes = 0;
  for (const Transfer& transfer : plan.transfers) {
    if (transfer.source != source) continue;
    const std::vector<RankId>& ranks = fleet_->known_ranks(transfer.giver);
    if (source == Transfer::Source::kReplica && ranks == in_memory_.ranks_of[transfer.giver]) {
      givers.insert(transfer.from);
    } else {
      givers.insert(ranks.begin(), ranks.end());
    }
    bytes += transfer.bytes;
  }
  if (givers.empty()) return "";
  return absl::StrCat("from the memory of ", launch::RankLabel({givers.begin(), givers.end()}),
                      source == Transfer::Source::kBuddy ? " (buddy), " : " (",
                      BytesText(static_cast<double>(bytes)),
                      source == Transfer::Source::kBuddy ? "" : ")");
}

// Returns "rank 1 on host 'b'" for each worker, for people.
std::vector<std::string> FleetRunner::NamesOf(const std::vector<WorkerId>& workers) const {
  std::vector<std::string> names;
  for (const WorkerId worker : workers) {
    const std::string host = fleet_->HostOf(worker);
    names.push_back(absl::StrCat(launch::RankLabel(fleet_->known_ranks(worker)),
                                 host.empty() ? "" : absl::StrCat(" on host '", host, "'")));
  }
  return names;
}

std::string FleetRunner::RecoveryText(Mesh mesh, const RecoveryPlan& plan, int64_t fenced) const {
  const bool shrinks = mesh == Mesh::kShrinks;
  std::vector<WorkerId> named;
  for (const WorkerId worker : fleet_->exchanged()) {
    const std::vector<WorkerId>& there = fleet_->workers();
    const bool is_there = std::find(there.begin(), there.end(), worker) != there.end();
    if (is_there != shrinks && dismissed_.count(worker) == 0) named.push_back(worker);
  }
  std::string text = absl::StrCat("epoch ", fleet_->epoch(),
                                  shrinks             ? " goes on without "
                                  : named.size() == 1 ? " has a new process for "
                                                      : " has new processes for ",
                                  absl::StrJoin(NamesOf(named), " and "));
  if (mesh != Mesh::kStays) {
    absl::StrAppend(
        &text, ", on ", facts_.num_ranks, facts_.num_ranks == 1 ? " device" : " devices",
        facts_.mesh.empty() ? "" : absl::StrCat(" (", facts_.mesh, ")"), " ", facts_.where);
  }
  std::vector<std::string> sources;
  for (const Transfer::Source source : {Transfer::Source::kReplica, Transfer::Source::kBuddy}) {
    const std::string given = GivenText(plan, source);
    if (!given.empty()) sources.push_back(given);
  }
  if (!sources.empty()) absl::StrAppend(&text, ", with states ", absl::StrJoin(sources, " and "));
  for (const WorkerId worker : plan.without_states) {
    absl::StrAppend(&text, "; no memory has the states of ",
                    launch::RankLabel(fleet_->known_ranks(worker)), buddies_.BuddyText(worker));
  }
  if (shrinks && !dismissed_.empty()) {
    const std::vector<WorkerId> idle(dismissed_.begin(), dismissed_.end());
    absl::StrAppend(&text, "; the ", idle.size() == 1 ? "process" : "processes", " of ",
                    absl::StrJoin(NamesOf(idle), " and "), idle.size() == 1 ? " is" : " are",
                    " sound and ", idle.size() == 1 ? "ends" : "end",
                    ", because the smaller mesh has no rank for ",
                    idle.size() == 1 ? "it" : "them");
  }
  if (fenced > 0) {
    absl::StrAppend(&text, "; ", fenced, fenced == 1 ? " message" : " messages",
                    " of the old epoch ", fenced == 1 ? "was" : "were", " refused");
  }
  return text;
}

// Workers on hosts tell what they have, and copies that were sent to them stay what they are.
absl::Status FleetRunner::CheckInputsHere(const std::vector<std::string>& files) const {
  if (options_.inputs == nullptr || fleet_->is_spread_over_hosts()) return absl::OkStatus();
  return options_.inputs->CheckKnown(files);
}

// The processes that live on may be on other hosts, and tell what is there.
absl::Status FleetRunner::CheckInputsOfLiving() const {
  const std::vector<std::string> files = DataFiles();
  WEIR_RETURN_IF_ERROR(CheckInputsHere(files));
  if (!fleet_->is_spread_over_hosts()) return absl::OkStatus();
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet_->num_workers());
  for (const WorkerId worker : fleet_->workers()) {
    NameInputs(*fleet_, worker, files, commands[worker].mutable_standing()->mutable_input_file());
  }
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet_->CallEach(commands, Fleet::Watch::kNone));
  return CheckInputs(*fleet_, options_.inputs, files, answers);
}

// Without the watch nobody tells the data from the other files of the start.
std::vector<std::string> FleetRunner::DataFiles() const {
  return options_.inputs == nullptr ? fleet_->input_files()
                                    : options_.inputs->FilesFor(InputWatch::Use::kData);
}

// Opens the ranks in the new epoch. Each worker opens the data anew, also one that lives on.
absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> FleetRunner::OpenAgain(
    Mesh mesh, const RecoveryPlan& plan, const train::Recovery& recovery,
    const std::vector<std::string>& files) {
  WEIR_RETURN_IF_ERROR(CheckInputsHere(files));
  IdVector<WorkerId, proto::WorkerCommand> commands = open_commands_;
  for (const WorkerId worker : fleet_->workers()) {
    proto::OpenCommand* const open = commands[worker].mutable_open();
    NameInputs(*fleet_, worker, files, open->mutable_input_file());
    open->set_epoch(fleet_->epoch());
    open->set_first_step(recovery.step);
    open->set_tells_shards(mesh != Mesh::kStays);
    open->set_goes_on(recovery.has_states && plan.has_states[worker]);
    open->set_layout(mesh != Mesh::kStays ? fleet_->epoch() : layout_);
    open->set_states_layout(layout_);
  }
  WEIR_ASSIGN_OR_RETURN(auto answers, fleet_->CallEach(commands, Fleet::Watch::kNone));
  WEIR_RETURN_IF_ERROR(CheckInputs(*fleet_, options_.inputs, files, answers));
  WEIR_RETURN_IF_ERROR(CheckProcessors(*fleet_, job_, answers));
  return answers;
}

absl::StatusOr<train::Recovery> FleetRunner::Recover(const train::RecoveryOrder& order) {
  if (is_changing_ && order.mesh == Mesh::kStays)
    return absl::FailedPreconditionError("the mesh was about to change when a process was lost");
  fleet_->Enter(order.mesh == Mesh::kGrows ? launch::FailureMoment::kGrowth
                                           : launch::FailureMoment::kRecovery);
  const int64_t fenced_before = fleet_->num_fenced();
  if (order.mesh != Mesh::kGrows) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<WorkerId> lost,
                          fleet_->BeginEpoch(order.mesh == Mesh::kShrinks ? Fleet::Replace::kNone
                                                                          : Fleet::Replace::kAll));
    return GoOn(order, lost, fenced_before);
  }
  // A mesh that does not begin to grow goes on with the files that it has open.
  WEIR_RETURN_IF_ERROR(CheckInputsOfLiving());
  WEIR_ASSIGN_OR_RETURN(const std::vector<WorkerId> returned, fleet_->BeginGrowth());
  absl::StatusOr<train::Recovery> recovery = GoOn(order, returned, fenced_before);
  // The processes that were there before can go on without the others.
  if (!recovery.ok() && !train::RanksAreGone(recovery.status()))
    return fleet_->GiveUpReturned(returned, std::string(recovery.status().message()));
  return recovery;
}

// Lets all workers of the epoch that has begun go on. `anew`: those that were lost, or have
// returned.
absl::StatusOr<train::Recovery> FleetRunner::GoOn(const train::RecoveryOrder& order,
                                                  const std::vector<WorkerId>& anew,
                                                  int64_t fenced_before) {
  const bool changes = order.mesh != Mesh::kStays;
  if (order.mesh == Mesh::kGrows) dismissed_.clear();  // these have come back
  RecoveryPlan plan;
  train::Recovery recovery;
  if (keeping_.is_on) {
    WEIR_ASSIGN_OR_RETURN(plan, PlanFromMemory(order.mesh, &recovery.reported));
  }
  const EpochStart start = ChooseStart(plan, order.step);
  if (!start.has_states) {
    plan.step = -1;
    plan.transfers.clear();
  }
  recovery.has_states = start.has_states;
  recovery.step = start.step;
  recovery.reported.erase(recovery.reported.lower_bound(recovery.step), recovery.reported.end());
  if (changes) {
    is_changing_ = true;
    WEIR_RETURN_IF_ERROR(
        fleet_->Spread(static_cast<int>(order.prepared->plans.training->places.num_ranks())));
    TakeJob(*order.job, *order.prepared);
  } else {
    for (const WorkerId worker : anew)
      SetPlace(*fleet_, worker, options_, job_, open_commands_[worker].mutable_open());
  }
  // Without a later checkpoint, the ranks load what they have loaded at this start: the file of
  // --init is among its files only if the start began with that file.
  const bool loads_start = !recovery.has_states && order.step == runner_options_.first_step;
  WEIR_ASSIGN_OR_RETURN(
      const auto answers,
      OpenAgain(order.mesh, plan, recovery, loads_start ? fleet_->input_files() : DataFiles()));
  IdVector<RankId, std::vector<HeldState>> shards_of = in_memory_.shards_of;
  if (changes) {
    WEIR_RETURN_IF_ERROR(TakeFacts(answers));
    WEIR_ASSIGN_OR_RETURN(shards_of, ShardsFrom(answers));
    WEIR_RETURN_IF_ERROR(EnterMesh(shards_of, &plan));
  } else if (recovery.has_states) {
    WEIR_RETURN_IF_ERROR(MoveStates(plan.transfers));
  }
  recovery.text = RecoveryText(order.mesh, plan, fleet_->num_fenced() - fenced_before);
  steps_done_ = recovery.step;
  keeping_.is_due = true;
  if (changes) {
    // From here on the states of the old mesh count no more.
    in_memory_ = {fleet_->ranks_of(), std::move(shards_of), LoneShardsOf()};
    layout_ = fleet_->epoch();
    is_changing_ = false;
    if (keeping_.is_on) {
      buddies_.Open(fleet_, job_.runtime().buddy_every(), updates_, in_memory_.shards_of, console_);
    }
  }
  WEIR_RETURN_IF_ERROR(buddies_.Join(in_memory_.shards_of));  // chooses buddies anew
  in_memory_.lone = buddies_.lone();
  SayLossOutlook();
  failed_ = false;
  work_.clear();
  return recovery;
}

// Returns the shards that end with one process, though the other processes of its host live on.
LoneShardsOf FleetRunner::ShardsOfOneProcess() const {
  const IdVector<WorkerId, std::string> one_host(fleet_->ranks_of().size(), "");
  return LoneShards(fleet_->ranks_of(), in_memory_.shards_of, one_host);
}

bool FleetRunner::StatesOutlive(RankId rank) const {
  if (!keeping_.is_on) return false;
  return buddies_.is_on() || ShardsOfOneProcess()[WorkerOf(rank)].empty();
}

void FleetRunner::SayLossOutlook() {
  LossFacts facts = options_.loss;
  facts.keeps_states = keeping_.is_on;
  if (buddies_.is_on()) {
    facts.buddy_every = job_.runtime().buddy_every();
  } else if (keeping_.is_on) {
    const LoneShardsOf of_process = ShardsOfOneProcess();
    const LoneShardsOf of_host = buddies_.LoneOf(in_memory_.shards_of);
    facts.has_other_process = fleet_->workers().size() > 1;
    facts.all_end_with_process = true;
    for (const WorkerId worker : fleet_->workers()) {
      const std::vector<RankId>& ranks = fleet_->ranks_of(worker);
      facts.all_end_with_process = facts.all_end_with_process && !of_process[worker].empty();
      if (!of_process[worker].empty())
        facts.end_with_process.insert(facts.end_with_process.end(), ranks.begin(), ranks.end());
      if (!of_host[worker].empty())
        facts.end_with_host.insert(facts.end_with_host.end(), ranks.begin(), ranks.end());
    }
  }
  const std::string outlook = LossOutlook(facts);
  if (std::exchange(outlook_, outlook) != outlook) console_->Say(outlook);
}

// A run of no steps moves nothing in the ranks, and makes and sends a copy as any other run does.
absl::Status FleetRunner::LetBuddiesHaveStep() {
  const int64_t end_ns = clock_.NowNs() + kBuddyWaitNs;
  bool is_begun = false;
  while (buddies_.is_on() && clock_.NowNs() < end_ns) {
    if (!buddies_.is_under_way()) {
      if (is_begun) return absl::OkStatus();
      is_begun = true;
      WEIR_RETURN_IF_ERROR(RunAfterCopies(0, /*keeps=*/true).status());
    } else {
      std::this_thread::sleep_for(kBuddyLook);
      WEIR_RETURN_IF_ERROR(RunAfterCopies(0, /*keeps=*/false).status());
    }
  }
  return absl::OkStatus();
}

absl::Status FleetRunner::PrepareToGrow() {
  fleet_->Enter(launch::FailureMoment::kGrowth);
  if (!keeping_.is_on) return absl::UnimplementedError("no states are kept in memory");
  if (buddies_.is_on()) return LetBuddiesHaveStep();
  WEIR_ASSIGN_OR_RETURN(const auto answers, RunAfterCopies(0, /*keeps=*/true));
  for (const WorkerId worker : fleet_->workers()) {
    if (answers[worker].keep_ns() == 0) {
      return absl::ResourceExhaustedError(absl::StrCat("the process of ",
                                                       launch::RankLabel(fleet_->ranks_of(worker)),
                                                       " has no memory for a copy of its states"));
    }
  }
  return absl::OkStatus();
}

WorkerId FleetRunner::WorkerOf(RankId rank) const {
  for (const WorkerId worker : fleet_->workers()) {
    const std::vector<RankId>& ranks = fleet_->ranks_of(worker);
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return worker;
  }
  std::abort();  // each rank has a process
}

absl::Status FleetRunner::Replace(RankId rank, const std::string& evidence) {
  WEIR_RETURN_IF_ERROR(LetBuddiesHaveStep());
  failed_ = true;
  return fleet_->GiveUp(WorkerOf(rank), evidence);
}

}  // namespace weir::fleet
