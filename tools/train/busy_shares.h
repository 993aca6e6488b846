// Finds, while a job runs, which share of the time each rank spends in acts, and in each part of a
// step by cause (step_shares.h). Not here: which rank is slow (straggler_watch.h).
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "actors/session/session.h"
#include "tools/live/live_run.h"

namespace weir::train {

class BusyShares {
 public:
  // Call after each burst of steps. `work` is the work of the ranks since the job began, and
  // `seconds` is the length of the burst. Returns the shares of the window that has ended, which is
  // a second of steps or more; mostly nothing.
  std::vector<live::RankBusy> Look(const std::vector<actors::RankWorkReport>& work, double seconds);

 private:
  struct Account {
    int64_t busy_ns = 0;  // in acts
    actors::TimeParts part_ns = {};
  };
  std::map<RankId, Account> before_;  // at the start of the window
  double seconds_ = 0;                // of this window
};

}  // namespace weir::train
