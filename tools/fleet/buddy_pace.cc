#include "tools/fleet/buddy_pace.h"

#include <algorithm>

namespace weir::fleet {

void BuddyPace::Begin() {
  begun_.reset();
  next_ = 0;
}

bool BuddyPace::IsDue(int64_t steps_done) const {
  return !begun_.has_value() && steps_done >= next_ && updates_.IsBetweenUpdates(steps_done);
}

int64_t BuddyPace::StepsToNext(int64_t steps_done) const {
  return updates_.RoundUp(std::max(next_, steps_done + 1)) - steps_done;
}

void BuddyPace::NoteBegun(int64_t step) {
  begun_ = step;
  next_ = (step / every_ + 1) * every_;
}

bool BuddyPace::NoteArrived(const std::vector<int64_t>& arrived) {
  const bool all_arrived =
      begun_.has_value() &&
      std::all_of(arrived.begin(), arrived.end(), [this](int64_t step) { return step == *begun_; });
  if (all_arrived) begun_.reset();
  return all_arrived;
}

}  // namespace weir::fleet
