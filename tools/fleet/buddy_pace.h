// BuddyPace says when the copies for buddies are due (runtime.buddy_every), and whether the last
// ones have arrived. At most one copy of each worker is under way, so while one is, the copies
// before it are whole everywhere.
//
//   Begin -> { (IsDue) -> NoteBegun -> NoteArrived* }*    Begin once in each epoch
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/update_rate.h"

namespace weir::fleet {

class BuddyPace {
 public:
  BuddyPace() = default;
  // `every`: steps from one copy to the next, from 1 on.
  BuddyPace(int64_t every, const UpdateRate& updates) : every_(every), updates_(updates) {}

  // An epoch begins: nothing is under way, and the next copies are due at once.
  void Begin();
  // Returns whether copies are to be made when `steps_done` steps are done.
  bool IsDue(int64_t steps_done) const;
  // Returns the number of steps, from 1 on, after which IsDue may hold.
  int64_t StepsToNext(int64_t steps_done) const;
  bool is_under_way() const { return begun_.has_value(); }
  // The copies of `step` steps done are ordered.
  void NoteBegun(int64_t step);
  // Takes, for each worker that sends copies, the step of its last copy that has arrived; -1: none
  // has. Returns whether the copies under way have all arrived; then they are under way no more.
  bool NoteArrived(const std::vector<int64_t>& arrived);

 private:
  int64_t every_ = 1;
  UpdateRate updates_;
  std::optional<int64_t> begun_;  // the step of the copies under way
  int64_t next_ = 0;              // steps done at which the next copies are due
};

}  // namespace weir::fleet
