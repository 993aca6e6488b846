#include "tests/chaos/recovery_buddies.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/fleet/buddy_choice.h"

namespace weir::chaos {

void RecoveryBuddies::Open(int64_t every, const UpdateRate& updates,
                           const fleet::StateLayout& layout) {
  every_ = 0;
  arrived_ = Arrived();
  if (every == 0) return;
  const fleet::LoneShardsOf lone =
      fleet::LoneShards(layout.ranks_of, layout.shards_of, world_->HostNames());
  if (fleet::ChooseNeed(world_->workers(), lone) != fleet::BuddyNeed::kCopies) return;
  every_ = every;
  pace_ = fleet::BuddyPace(every, updates);
}

IdVector<WorkerId, VirtualCommand> RecoveryBuddies::Join(fleet::StateLayout* layout) {
  layout->lone = fleet::LoneShards(layout->ranks_of, layout->shards_of, world_->HostNames());
  lone_ = layout->lone;
  buddy_of_ = fleet::ChooseBuddiesOf(world_->workers(), world_->HostNames());
  pace_.Begin();
  arrived_ = Arrived();
  VirtualCommand join;
  join.kind = VirtualCommand::Kind::kBuddy;
  join.epoch = world_->epoch();
  IdVector<WorkerId, VirtualCommand> commands(layout->ranks_of.size(), join);
  CheckBuddies(layout->lone);
  for (const WorkerId worker : world_->workers()) {
    if (layout->lone[worker].empty() || !buddy_of_[worker].has_value()) continue;
    commands[worker].buddy = *buddy_of_[worker];
    commands[worker].lone = layout->lone[worker];
    commands[*buddy_of_[worker]].charges.push_back({worker, layout->lone[worker]});
  }
  return commands;
}

void RecoveryBuddies::CheckBuddies(const fleet::LoneShardsOf& lone) const {
  const IdVector<WorkerId, std::string> hosts = world_->HostNames();
  std::set<std::string> of_job;
  for (const WorkerId worker : world_->workers()) of_job.insert(hosts[worker]);
  for (const WorkerId worker : world_->workers()) {
    if (lone[worker].empty()) continue;
    const std::optional<WorkerId> buddy = buddy_of_[worker];
    if (!buddy.has_value() || *buddy == worker ||
        (of_job.size() > 1 && hosts[*buddy] == hosts[worker])) {
      world_->Violate(absl::StrCat("worker ", worker, " on host '", hosts[worker],
                                   "' has no buddy on another host"));
    }
  }
}

void RecoveryBuddies::NoteBegun(int64_t step) {
  pace_.NoteBegun(step);
  begun_ = step;
}

void RecoveryBuddies::NoteRun(const IdVector<WorkerId, VirtualAnswer>& answers,
                              const fleet::StateLayout& layout, uint32_t mesh) {
  if (!pace_.is_under_way()) return;
  std::vector<int64_t> arrived;
  for (const WorkerId worker : world_->workers()) {
    if (!layout.lone[worker].empty()) arrived.push_back(answers[worker].sent_step);
  }
  if (!pace_.NoteArrived(arrived)) return;
  world_->TellStarter(absl::StrCat("the copies of step ", begun_, " have arrived everywhere"));
  ++num_arrived_;
  arrived_ = {begun_, IdVector<WorkerId, int64_t>(layout.ranks_of.size(), 0)};
  for (const WorkerId worker : world_->workers())
    arrived_.process_of[worker] = world_->ProcessOf(worker);
  CheckLosses(begun_, layout, mesh);
}

// Loses each host, or on one host each process, in thought.
void RecoveryBuddies::CheckLosses(int64_t step, const fleet::StateLayout& layout,
                                  uint32_t mesh) const {
  const IdVector<WorkerId, std::string> hosts = world_->HostNames();
  std::set<std::string> of_job;
  for (const WorkerId worker : world_->workers()) {
    if (world_->Find(worker) == nullptr) return;  // a loss comes that nobody has noticed yet
    of_job.insert(hosts[worker]);
  }
  for (const WorkerId lost : world_->workers()) {
    std::vector<MemoryOfWorker> rest;
    for (const WorkerId worker : world_->workers()) {
      const bool is_lost = of_job.size() > 1 ? hosts[worker] == hosts[lost] : worker == lost;
      if (is_lost) continue;
      const VirtualWorker& found = *world_->Find(worker);
      // Only copies count here: the ranks move on.
      rest.push_back({worker,
                      {.kept_step = found.kept().last_step(),
                       .resting_step = -1,
                       .older_kept_step = found.kept().older_step(),
                       .guarded = found.guarded()},
                      {mesh, mesh}});
    }
    if (HasAll(step, layout, mesh, rest)) continue;
    world_->Violate(absl::StrCat(
        "the copies of step ", step, " have arrived, and the loss of ",
        of_job.size() > 1 ? absl::StrCat("host ", hosts[lost]) : absl::StrCat("worker ", lost),
        " would take a state from memory"));
  }
}

void RecoveryBuddies::CheckKept(const std::vector<MemoryOfWorker>& memory, uint32_t mesh) const {
  if (arrived_.step < 0) return;
  const auto lives = [this](WorkerId worker) {
    return arrived_.process_of[worker] != 0 &&
           world_->ProcessOf(worker) == arrived_.process_of[worker];
  };
  for (const MemoryOfWorker& of : memory) {
    const fleet::WorkerStanding standing = of.standing;
    if (!lives(of.worker)) continue;
    const bool has_own = of.meshes.copies == mesh && (standing.kept_step == arrived_.step ||
                                                      standing.older_kept_step == arrived_.step);
    bool has_charges = of.meshes.copies == mesh;
    for (const WorkerId charge : lone_.ids()) {
      if (lone_[charge].empty() || buddy_of_[charge] != of.worker) continue;
      has_charges =
          has_charges && std::any_of(standing.guarded.begin(), standing.guarded.end(),
                                     [&](const fleet::WholeCopy& copy) {
                                       return copy.charge == charge && copy.step == arrived_.step;
                                     });
    }
    if (has_own && has_charges) continue;
    world_->Violate(absl::StrCat("worker ", of.worker, " has dropped copies of step ",
                                 arrived_.step, ", and no later ones have arrived everywhere"));
  }
}

void RecoveryBuddies::GoOnFrom(int64_t step) {
  if (arrived_.step != step) arrived_ = Arrived();
}

}  // namespace weir::chaos
