#include "tools/launch/restart_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir::launch {
namespace {

// The same failure ends the job when it comes this number of times in a row.
constexpr int kLastOfJob = 2;
constexpr int kLastFromOutside = 3;

}  // namespace

std::string RestartPolicy::Note(const JobFailure& failure) {
  const bool is_same = last_.has_value() && last_->who == failure.who &&
                       last_->what == failure.what && last_->where == failure.where &&
                       last_->step == failure.step;
  last_ = failure;
  same_in_a_row_ = is_same ? same_in_a_row_ + 1 : 1;
  times_ms_.push_back(failure.time_ms);
  while (times_ms_.front() + limits_.window_ms < failure.time_ms) times_ms_.pop_front();
  if (same_in_a_row_ >=
      (failure.origin == FailureOrigin::kOutside ? kLastFromOutside : kLastOfJob)) {
    return absl::StrCat(failure.who, " failed ", same_in_a_row_,
                        " times in a row in the same way at the same place (", failure.what,
                        " after step ", failure.step, failure.where.empty() ? "" : ", ",
                        failure.where, ")");
  }
  if (recent() > limits_.restarts_max) {
    return absl::StrCat("the job failed ", recent(), recent() == 1 ? " time" : " times", " within ",
                        limits_.window_ms / 1000, " s, and --max-restarts is ",
                        limits_.restarts_max);
  }
  ++restarts_;
  return "";
}

std::string RestartPolicy::NoteReplacement(const std::string& who, int64_t time_ms) {
  if (!replaced_.empty() && time_ms - replaced_ms_ < limits_.window_ms) {
    return absl::StrCat("the process of ", replaced_, " was replaced ",
                        (time_ms - replaced_ms_) / 1000,
                        " s ago, and at most one is replaced within ", limits_.window_ms / 1000,
                        " s (--restart-window)");
  }
  replaced_ = who;
  replaced_ms_ = time_ms;
  return "";
}

bool RestartPolicy::HasRoom(int64_t time_ms) const { return RoomAtMs(time_ms) <= time_ms; }

int64_t RestartPolicy::RoomAtMs(int64_t time_ms) const {
  const size_t num_allowed = static_cast<size_t>(limits_.restarts_max);
  if (times_ms_.size() <= num_allowed) return time_ms;
  // The failures before this one, and itself, must leave the window.
  const int64_t last_to_leave_ms = times_ms_[times_ms_.size() - num_allowed - 1];
  return std::max(time_ms, last_to_leave_ms + limits_.window_ms + 1);
}

}  // namespace weir::launch
