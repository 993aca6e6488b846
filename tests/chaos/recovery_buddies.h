// The starter's side of copies in the memory of buddies, in the simulation of recovery, as in
// tools/fleet/buddy_copies.cc. Who is whose buddy, when copies are due and whether they have
// arrived is decided by the product (buddy_choice.h, buddy_pace.h, recovery_plan.h).
//
// The invariants: a buddy is on another host wherever the job has one, and once copies have arrived
// everywhere, no loss of one host, or on one host of one process, takes a state from memory. Until
// later copies have arrived everywhere, nobody who lives drops them.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/update_rate.h"
#include "tests/chaos/recovery_memory.h"
#include "tests/chaos/recovery_worker.h"
#include "tests/chaos/recovery_world.h"
#include "tools/fleet/buddy_pace.h"
#include "tools/fleet/recovery_plan.h"

namespace weir::chaos {

class RecoveryBuddies {
 public:
  explicit RecoveryBuddies(RecoveryWorld* world) : world_(world) {}

  // A mesh begins. `every` is 0 for a job without copies.
  void Open(int64_t every, const UpdateRate& updates, const fleet::StateLayout& layout);
  bool is_on() const { return every_ > 0; }
  // Returns whether copies are on their way.
  bool is_under_way() const { return is_on() && pace_.is_under_way(); }
  // Chooses buddies in an epoch, and returns the commands that join them. `layout.lone` becomes
  // what buddies keep.
  IdVector<WorkerId, VirtualCommand> Join(fleet::StateLayout* layout);
  bool IsDue(int64_t steps_done) const { return pace_.IsDue(steps_done); }
  int64_t StepsToNext(int64_t steps_done) const { return pace_.StepsToNext(steps_done); }
  void NoteBegun(int64_t step);
  // Takes the answers to a run. `mesh` is the number of the mesh of `layout`.
  void NoteRun(const IdVector<WorkerId, VirtualAnswer>& answers, const fleet::StateLayout& layout,
               uint32_t mesh);
  // Checks that those who live have the copies that have arrived last.
  void CheckKept(const std::vector<MemoryOfWorker>& memory, uint32_t mesh) const;
  // The job goes on from states of `step`: all other copies are forgotten.
  void GoOnFrom(int64_t step);
  int64_t num_arrived() const { return num_arrived_; }

 private:
  // The last copies that have arrived everywhere, and the processes that have them.
  struct Arrived {
    int64_t step = -1;
    IdVector<WorkerId, int64_t> process_of;
  };

  void CheckBuddies(const fleet::LoneShardsOf& lone) const;
  void CheckLosses(int64_t step, const fleet::StateLayout& layout, uint32_t mesh) const;

  RecoveryWorld* const world_;
  int64_t every_ = 0;
  fleet::BuddyPace pace_;
  IdVector<WorkerId, std::optional<WorkerId>> buddy_of_;
  fleet::LoneShardsOf lone_;
  int64_t begun_ = -1;
  Arrived arrived_;
  int64_t num_arrived_ = 0;
};

}  // namespace weir::chaos
