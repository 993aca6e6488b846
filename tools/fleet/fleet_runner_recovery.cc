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

namespace weir::fleet {
namespace {

// Copies of the states take at most one part in so many of the time.
constexpr int64_t kKeepShare = 100;
// The bytes of states that move at once. Both ends and the starter hold them.
constexpr int64_t kMoveBytes = 16 << 20;
// The wait for copies before a process is replaced, and the time between two looks at them.
constexpr int64_t kBuddyWaitNs = 60'000'000'000;
constexpr auto kBuddyLook = std::chrono::milliseconds(2);

void SetRange(const StateMove& move, RankId rank, proto::ShardRange* range) {
  range->set_rank(rank.value());
  range->set_name(move.name);
  range->set_begin(move.begin);
  range->set_bytes(move.bytes);
}

}  // namespace

absl::Status FleetRunner::TakeShards(const IdVector<WorkerId, proto::WorkerAnswer>& answers,
                                     int64_t buddy_every) {
  shards_of_.resize(facts_.num_ranks);
  for (const proto::WorkerAnswer& answer : answers) {
    for (const proto::HeldShard& held : answer.held()) {
      const RankId rank(held.rank());
      if (!shards_of_.Has(rank))
        return absl::InternalError(absl::StrCat("a worker holds rank ", rank));
      WEIR_ASSIGN_OR_RETURN(TensorSlice slice, SliceFrom(held.name(), held.slice()));
      shards_of_[rank].push_back({held.name(), std::move(slice)});
    }
  }
  // Gradients that wait for their update are part of no step's states.
  keeping_.is_on = updates_.delay == 0;
  if (!keeping_.is_on) {
    console_->Say(
        "WARNING: --on-failure elastic goes on from the last checkpoint, and not from memory, "
        "because gradients are delayed");
    return absl::OkStatus();
  }
  buddies_.Open(fleet_, buddy_every, updates_, shards_of_, console_);
  return buddies_.Join(shards_of_);
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
  for (const proto::WorkerAnswer& answer : answers) {
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
    std::map<int64_t, train::StepMetrics>* reported) {
  proto::WorkerCommand command;
  command.mutable_standing();
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet_->Call(command, Fleet::Watch::kNone));
  IdVector<WorkerId, WorkerStanding> standings;
  for (const WorkerId worker : fleet_->workers()) {
    const proto::WorkerAnswer& answer = answers[worker];
    WorkerStanding standing;
    standing.kept_step = answer.kept_step();
    standing.resting_step = answer.resting_step();
    standing.older_kept_step = answer.older_kept_step();
    for (const proto::WholeCopyFact& copy : answer.whole_copy())
      standing.guarded.push_back({WorkerId(copy.charge()), copy.step()});
    standings.push_back(std::move(standing));
  }
  *reported = MetricsOf(answers);
  reported->erase(reported->begin(), reported->lower_bound(steps_done_));
  // The steps of a call that failed may be done on all ranks, but a step whose report was lost with
  // a worker must be done again.
  return PlanRecovery(standings, fleet_->ranks_of(), shards_of_, buddies_.lone(),
                      [this, reported](int64_t step) {
                        return updates_.IsBetweenUpdates(step) &&
                               HasMetrics(*reported, steps_done_, step, metrics_of_every_step_);
                      });
}

// Moves the shards of the plan from the workers that keep them, by way of this process, to the
// workers that hold the same shards from now on.
absl::Status FleetRunner::MoveStates(const RecoveryPlan& plan) {
  IdVector<RankId, WorkerId> worker_of(shards_of_.size());
  for (const WorkerId worker : fleet_->workers()) {
    for (const RankId rank : fleet_->ranks_of(worker)) worker_of[rank] = worker;
  }
  for (const std::vector<StateMove>& batch : BatchesOf(plan.transfers, kMoveBytes)) {
    IdVector<WorkerId, proto::WorkerCommand> gives(fleet_->num_workers());
    IdVector<WorkerId, proto::WorkerCommand> takes(fleet_->num_workers());
    for (const WorkerId worker : fleet_->workers()) {
      gives[worker].mutable_give();
      takes[worker].mutable_take();
    }
    for (const StateMove& move : batch) {
      SetRange(move, move.from, gives[move.giver].mutable_give()->add_range());
      SetRange(move, move.to, takes[worker_of[move.to]].mutable_take()->add_range());
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

// Returns "from the memory of rank 3 (16.0 KiB)" for the transfers from that source; empty: there
// are none.
std::string FleetRunner::GivenText(const RecoveryPlan& plan, Transfer::Source source) const {
  std::set<RankId> givers;
  int64_t bytes = 0;
  for (const Transfer& transfer : plan.transfers) {
    if (transfer.source != source) continue;
    const std::vector<RankId>& ranks = fleet_->ranks_of(transfer.giver);
    if (source == Transfer::Source::kReplica) givers.insert(transfer.from);
    if (source == Transfer::Source::kBuddy) givers.insert(ranks.begin(), ranks.end());
    bytes += transfer.bytes;
  }
  if (givers.empty()) return "";
  return absl::StrCat("from the memory of ", launch::RankLabel({givers.begin(), givers.end()}),
                      source == Transfer::Source::kBuddy ? " (buddy), " : " (",
                      BytesText(static_cast<double>(bytes)),
                      source == Transfer::Source::kBuddy ? "" : ")");
}

std::string FleetRunner::RecoveryText(const std::vector<WorkerId>& anew, const RecoveryPlan& plan,
                                      int64_t fenced) const {
  std::vector<std::string> names;
  for (const WorkerId worker : anew) {
    const std::string host = fleet_->HostOf(worker);
    names.push_back(absl::StrCat(launch::RankLabel(fleet_->ranks_of(worker)),
                                 host.empty() ? "" : absl::StrCat(" on host '", host, "'")));
  }
  std::string text =
      absl::StrCat("epoch ", fleet_->epoch(),
                   anew.size() == 1 ? " has a new process for " : " has new processes for ",
                   absl::StrJoin(names, " and "));
  std::vector<std::string> sources;
  for (const Transfer::Source source : {Transfer::Source::kReplica, Transfer::Source::kBuddy}) {
    const std::string given = GivenText(plan, source);
    if (!given.empty()) sources.push_back(given);
  }
  if (!sources.empty()) absl::StrAppend(&text, ", with states ", absl::StrJoin(sources, " and "));
  for (const WorkerId worker : plan.without_states) {
    absl::StrAppend(&text, "; no memory has the states of ",
                    launch::RankLabel(fleet_->ranks_of(worker)), buddies_.BuddyText(worker));
  }
  if (fenced > 0) {
    absl::StrAppend(&text, "; ", fenced, fenced == 1 ? " message" : " messages",
                    " of the old epoch ", fenced == 1 ? "was" : "were", " refused");
  }
  return text;
}

absl::StatusOr<train::Recovery> FleetRunner::Recover(const train::RecoveryOrder& order) {
  const int64_t fenced_before = fleet_->num_fenced();
  WEIR_ASSIGN_OR_RETURN(const std::vector<WorkerId> anew, fleet_->BeginEpoch());
  RecoveryPlan plan;
  train::Recovery recovery;
  if (keeping_.is_on) {
    WEIR_ASSIGN_OR_RETURN(plan, PlanFromMemory(&recovery.reported));
  }
  const EpochStart start = ChooseStart(plan, order.step);
  if (!start.has_states) {
    plan.step = -1;
    plan.transfers.clear();
  }
  recovery.has_states = start.has_states;
  recovery.step = start.step;
  recovery.reported.erase(recovery.reported.lower_bound(recovery.step), recovery.reported.end());
  for (const WorkerId worker : anew) set_place_(worker, open_commands_[worker].mutable_open());
  IdVector<WorkerId, proto::WorkerCommand> commands = open_commands_;
  for (const WorkerId worker : fleet_->workers()) {
    proto::OpenCommand* const open = commands[worker].mutable_open();
    open->set_epoch(fleet_->epoch());
    open->set_first_step(recovery.step);
    open->set_tells_shards(false);
    open->set_goes_on(recovery.has_states && plan.has_states[worker]);
  }
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet_->CallEach(commands, Fleet::Watch::kNone));
  WEIR_RETURN_IF_ERROR(CheckInputs(*fleet_, answers));
  NoteInputsChecked();
  const proto::Job& job = commands[WorkerId(0)].open().job();
  WEIR_RETURN_IF_ERROR(CheckProcessors(*fleet_, job, answers));
  if (recovery.has_states) WEIR_RETURN_IF_ERROR(MoveStates(plan));
  recovery.text = RecoveryText(anew, plan, fleet_->num_fenced() - fenced_before);
  WEIR_RETURN_IF_ERROR(buddies_.Join(shards_of_));  // chooses buddies anew
  steps_done_ = recovery.step;
  keeping_.is_due = true;
  failed_ = false;
  work_.clear();
  return recovery;
}

bool FleetRunner::StatesOutlive(RankId rank) const {
  if (!keeping_.is_on) return false;
  if (buddies_.is_on()) return true;
  // The other processes of the host live on.
  const IdVector<WorkerId, std::string> one_host(fleet_->ranks_of().size(), "");
  return LoneShards(fleet_->ranks_of(), shards_of_, one_host)[WorkerOf(rank)].empty();
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
