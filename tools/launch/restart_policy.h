// Decides whether a job whose processes failed starts again. A job that fails for reasons of its
// own fails again at the same place, so the policy looks at where and how the job failed, and at
// how often it has failed lately. Failures in a row are the same one if the same processes failed
// in the same way, after the same step, in the same act or at the same moment of the job. The
// second one ends the job if its reason lies in the job. Somebody who kills a process twice soon
// after its start makes two failures at the same place, too, and the system kills a process that
// takes too much memory by the same signal. So the third failure ends the job if its reason may lie
// outside of the job. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "tools/launch/job_failure.h"

namespace weir::launch {

struct RestartLimits {
  int restarts_max = 3;                   // within the window
  int64_t window_ms = int64_t{3600'000};  // an earlier failure counts no longer
};

class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartLimits& limits) : limits_(limits) {}

  // Notes a failure. Returns "" if the job is to start again, else the reason why not, for people.
  std::string Note(const JobFailure& failure);

  // Notes that the process of `who` is to be replaced because it is slow. Returns "" if it is to
  // be, else the reason why not, for people: at most one process is replaced within the window,
  // since a machine that stays slow would slow the next one, too. A replacement is no failure.
  std::string NoteReplacement(const std::string& who, int64_t time_ms);

  // Returns whether a process may start in a place that was lost: at most restarts_max failures are
  // in the window before that time.
  bool HasRoom(int64_t time_ms) const;

  // Returns the first time, from `time_ms` on, at which HasRoom holds if nothing fails until then.
  int64_t RoomAtMs(int64_t time_ms) const;

  // Returns how many failures were noted after which the job was to start again.
  int restarts() const { return restarts_; }
  // Returns the failures within the window.
  int recent() const { return static_cast<int>(times_ms_.size()); }

 private:
  const RestartLimits limits_;
  std::optional<JobFailure> last_;
  int same_in_a_row_ = 0;         // the last failure, and those before it that are the same one
  std::deque<int64_t> times_ms_;  // of the failures within the window
  int restarts_ = 0;
  std::string replaced_;  // the last one; empty: none
  int64_t replaced_ms_ = 0;
};

}  // namespace weir::launch
