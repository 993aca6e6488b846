#include "tools/fleet/buddy_copies.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/fleet/buddy_choice.h"
#include "tools/launch/placement.h"

namespace weir::fleet {
namespace {

constexpr double kNsPerSecond = 1e9;

void SetCharge(WorkerId worker, RankId peer, const std::vector<GuardedShard>& shards,
               proto::ChargeSpec* spec) {
  spec->set_worker(worker.value());
  spec->set_peer(peer.value());
  for (const GuardedShard& shard : shards) {
    spec->add_rank(shard.rank.value());
    spec->add_name(shard.name);
    spec->add_bytes(shard.bytes);
  }
}

IdVector<WorkerId, std::string> HostsOf(const Fleet& fleet) {
  IdVector<WorkerId, std::string> host_of;
  for (const WorkerId worker : fleet.ranks_of().ids()) host_of.push_back(fleet.HostOf(worker));
  return host_of;
}

}  // namespace

void BuddyCopies::Open(Fleet* fleet, int64_t every, const UpdateRate& updates,
                       const IdVector<RankId, std::vector<HeldState>>& shards_of,
                       console::Console* console) {
  fleet_ = fleet;
  console_ = console;
  if (every == 0) return;
  lone_ = LoneOf(shards_of);
  every_ = 0;
  switch (ChooseNeed(fleet->workers(), lone_)) {
    case BuddyNeed::kOneProcess:
      console->Say("buddy copies need a second process, and this job has one: none are made");
      return;
    case BuddyNeed::kAllReplicas:
      console->Say(absl::StrCat(
          "no buddy copies are made on this mesh: every state has a replica ",
          fleet->HostOf(fleet->workers().front()).empty()
              ? "in another process, so the loss of one process costs no state"
              : "on another host, so the loss of one host costs no state",
          "; if all replicas of a state are lost at once, states come from the last checkpoint"));
      return;
    case BuddyNeed::kCopies: break;
  }
  every_ = every;
  pace_ = BuddyPace(every, updates);
}

LoneShardsOf BuddyCopies::LoneOf(const IdVector<RankId, std::vector<HeldState>>& shards_of) const {
  return LoneShards(fleet_->ranks_of(), shards_of, HostsOf(*fleet_));
}

absl::Status BuddyCopies::Join(const IdVector<RankId, std::vector<HeldState>>& shards_of) {
  if (!is_on()) return absl::OkStatus();
  lone_ = LoneOf(shards_of);
  is_ordered_ = false;
  pace_.Begin();
  buddy_of_ = ChooseBuddiesOf(fleet_->workers(), HostsOf(*fleet_));
  IdVector<WorkerId, proto::WorkerCommand> commands(fleet_->num_workers());
  size_t num_ranks = 0;
  for (const WorkerId worker : fleet_->workers()) num_ranks += fleet_->ranks_of(worker).size();
  for (const WorkerId worker : fleet_->workers()) {
    proto::BuddyCommand* const command = commands[worker].mutable_buddy();
    command->set_epoch(fleet_->epoch());
    command->set_num_ranks(static_cast<int32_t>(num_ranks));
  }
  for (const WorkerId worker : fleet_->workers()) {
    if (!HasLone(worker)) continue;
    const WorkerId buddy = *buddy_of_[worker];
    SetCharge(worker, fleet_->ranks_of(buddy).front(), lone_[worker],
              commands[worker].mutable_buddy()->mutable_own());
    SetCharge(worker, fleet_->ranks_of(worker).front(), lone_[worker],
              commands[buddy].mutable_buddy()->add_charge());
  }
  WEIR_ASSIGN_OR_RETURN(const auto answers, fleet_->CallEach(commands, Fleet::Watch::kNone));
  guarded_bytes_.assign(fleet_->num_workers(), 0);
  for (const WorkerId worker : fleet_->workers()) {
    guarded_bytes_[worker] = answers[worker].guarded_bytes();
    if (!answers[worker].buddy_fault().empty()) GiveUp(worker, answers[worker].buddy_fault());
  }
  return absl::OkStatus();
}

void BuddyCopies::NoteBegun(int64_t step) {
  pace_.NoteBegun(step);
  is_ordered_ = true;
}

void BuddyCopies::NoteRun(const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  if (!pace_.is_under_way()) return;
  if (std::exchange(is_ordered_, false)) NoteCopied(answers);
  int64_t took_ns = 0, bytes = 0;
  std::vector<int64_t> arrived;
  for (const WorkerId worker : fleet_->workers()) {
    const proto::WorkerAnswer& answer = answers[worker];
    if (!answer.buddy_fault().empty()) GiveUp(worker, answer.buddy_fault());
    if (!is_on()) return;
    if (!HasLone(worker)) continue;
    arrived.push_back(answer.sent_step());
    took_ns = std::max(took_ns, answer.sent_ns());
    bytes += answer.sent_bytes();
  }
  if (!pace_.NoteArrived(arrived)) return;
  costs_.seconds = static_cast<double>(took_ns) / kNsPerSecond;
  costs_.bytes = costs_.bytes.value_or(0) + bytes;
  if (std::exchange(has_said_, true)) return;
  console_->Say(absl::StrCat(
      "each process copies its states every ", every_ == 1 ? "step" : Plural(every_, "step"),
      ", and its buddy keeps what has no replica: the first copies stopped the steps for ",
      TimeText(static_cast<double>(first_stall_ns_)), ", and took ",
      TimeText(static_cast<double>(took_ns)), " beside them to move ",
      BytesText(static_cast<double>(bytes)), " in all; two copies of each take at most ",
      BytesText(static_cast<double>(memory_bytes_)), " of the memory of a process"));
}

// Takes the answers to the run that began with the copies.
void BuddyCopies::NoteCopied(const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  int64_t stall_ns = 0;
  for (const WorkerId worker : fleet_->workers()) {
    const proto::WorkerAnswer& answer = answers[worker];
    if (answer.keep_ns() == 0) return GiveUp(worker, "it has no memory for a copy of its states");
    stall_ns = std::max(stall_ns, answer.keep_ns());
    if (has_said_) continue;
    memory_bytes_ = std::max(memory_bytes_, 2 * answer.kept_bytes() + guarded_bytes_[worker]);
  }
  if (!has_said_) first_stall_ns_ = stall_ns;
  costs_.stall_seconds =
      costs_.stall_seconds.value_or(0) + static_cast<double>(stall_ns) / kNsPerSecond;
}

train::CopyCosts BuddyCopies::TakeCosts() {
  train::CopyCosts costs;
  std::swap(costs, costs_);
  return costs;
}

std::string BuddyCopies::BuddyText(WorkerId worker) const {
  if (!buddy_of_.Has(worker) || !buddy_of_[worker].has_value()) return "";
  return absl::StrCat(", whose buddy is ",
                      launch::RankLabel(fleet_->known_ranks(*buddy_of_[worker])));
}

void BuddyCopies::GiveUp(WorkerId worker, const std::string& why) {
  if (!is_on()) return;
  every_ = 0;
  console_->Say(
      absl::StrCat("WARNING: there are no more buddy copies, because of ",
                   launch::RankLabel(fleet_->known_ranks(worker)), ": ", why,
                   ". The loss of a process may cost the steps since the last checkpoint"));
}

}  // namespace weir::fleet
