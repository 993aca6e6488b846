// BuddyCopies are the starter's side of copies in the memory of buddies (runtime.buddy_every): who
// is whose buddy in this epoch, when copies are due, whether the last ones have arrived, and what
// they cost.
//
//   Open -> { Join -> { NoteBegun -> NoteRun }* }    Join once in each epoch
//
// At most one copy of each worker is under way: a copy that is due waits until all copies before it
// have arrived. So the workers always have whole copies of one step.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/update_rate.h"
#include "tools/console/console.h"
#include "tools/fleet/buddy_pace.h"
#include "tools/fleet/fleet.h"
#include "tools/fleet/recovery_plan.h"
#include "tools/train/job_runner.h"

namespace weir::fleet {

class BuddyCopies {
 public:
  // Decides whether the job has copies, and says so if not. `every`: runtime.buddy_every.
  // `shards_of[rank]` are the shards that the rank holds.
  void Open(Fleet* fleet, int64_t every, const UpdateRate& updates,
            const IdVector<RankId, std::vector<HeldState>>& shards_of, console::Console* console);
  // False: no states need a copy, or copies cannot be made any more.
  bool is_on() const { return every_ > 0; }

  // Chooses the buddies, and what they keep, by the hosts of this epoch, and joins the workers.
  // Call when all ranks of an epoch are open. The next copy is due at once.
  absl::Status Join(const IdVector<RankId, std::vector<HeldState>>& shards_of);
  // Returns the shards of which buddies have copies since the last Join; empty: none ever.
  const LoneShardsOf& lone() const { return lone_; }
  // Returns the shards that end with one host, or, if the job has one host, with one process.
  // Call after Open.
  LoneShardsOf LoneOf(const IdVector<RankId, std::vector<HeldState>>& shards_of) const;
  // Returns whether copies are to be made when `steps_done` steps are done.
  bool IsDue(int64_t steps_done) const { return pace_.IsDue(steps_done); }
  // Returns the number of steps, from 1 on, after which IsDue may hold.
  int64_t StepsToNext(int64_t steps_done) const { return pace_.StepsToNext(steps_done); }
  // Returns whether copies are on their way.
  bool is_under_way() const { return pace_.is_under_way(); }
  // The copies of `step` steps done are ordered with a run.
  void NoteBegun(int64_t step);
  // Takes the answers to a run.
  void NoteRun(const IdVector<WorkerId, proto::WorkerAnswer>& answers);
  // Returns what the copies have cost since the last call.
  train::CopyCosts TakeCosts();

  // Returns ", whose buddy is rank 2" for a worker with a buddy, else an empty text.
  std::string BuddyText(WorkerId worker) const;

 private:
  bool HasLone(WorkerId worker) const { return !lone_[worker].empty(); }
  void NoteCopied(const IdVector<WorkerId, proto::WorkerAnswer>& answers);
  // Ends the copies, and warns.
  void GiveUp(WorkerId worker, const std::string& why);

  Fleet* fleet_ = nullptr;
  console::Console* console_ = nullptr;
  int64_t every_ = 0;
  LoneShardsOf lone_;
  IdVector<WorkerId, std::optional<WorkerId>> buddy_of_;
  BuddyPace pace_;
  bool is_ordered_ = false;                    // the answers to the run with the order are to come
  IdVector<WorkerId, int64_t> guarded_bytes_;  // the memory of each worker for others
  // Of the first copies, until the console has them.
  int64_t first_stall_ns_ = 0;
  int64_t memory_bytes_ = 0;
  bool has_said_ = false;
  train::CopyCosts costs_;
};

}  // namespace weir::fleet
