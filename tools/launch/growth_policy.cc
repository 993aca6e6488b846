#include "tools/launch/growth_policy.h"

#include <algorithm>
#include <utility>

namespace weir::launch {

void GrowthPolicy::NoteSmaller(int64_t time_ms, const std::vector<WorkerId>& lost) {
  const bool is_again = std::any_of(lost.begin(), lost.end(), [&](WorkerId worker) {
    const auto returned = returned_ms_.find(worker);
    return returned != returned_ms_.end() && time_ms - returned->second < limits_.window_ms;
  });
  const bool has_grown = std::exchange(has_begun_, false);
  if (is_again) {
    ++lost_again_;
    returned_ms_.clear();  // the others that have come back do not count once more
  } else if (has_grown && time_ms - begun_ms_ >= limits_.window_ms) {
    lost_again_ = 0;
    wait_ms_ = limits_.after_ms;
  }
  is_smaller_ = true;
  since_ms_ = time_ms;
}

bool GrowthPolicy::TakesTurn(int64_t time_ms) {
  if (!is_smaller_ || limits_.after_ms == 0 || has_given_up() || time_ms - since_ms_ < wait_ms_)
    return false;
  since_ms_ = time_ms;
  wait_ms_ = std::min(2 * wait_ms_, std::max(limits_.after_ms, limits_.window_ms));
  return true;
}

std::optional<int64_t> GrowthPolicy::NextTurnMs() const {
  if (!is_smaller_ || limits_.after_ms == 0 || has_given_up()) return std::nullopt;
  return since_ms_ + wait_ms_;
}

void GrowthPolicy::NoteBegun(int64_t time_ms, const std::vector<WorkerId>& returning) {
  for (const WorkerId worker : returning) returned_ms_[worker] = time_ms;
  is_smaller_ = false;
  has_begun_ = true;
  begun_ms_ = time_ms;
}

void GrowthPolicy::NoteRefused(int64_t time_ms) {
  is_smaller_ = true;
  has_begun_ = false;
  since_ms_ = time_ms;
  std::erase_if(returned_ms_, [this](const auto& each) { return each.second == begun_ms_; });
}

void GrowthPolicy::NoteStart() {
  is_smaller_ = has_begun_ = false;
  returned_ms_.clear();
}

}  // namespace weir::launch
