// Finds, while a job runs, which share of the time each rank spends in acts. In the rest the rank
// waits for others, or has nothing to do. Not here: which rank is slow (straggler_watch.h).
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
  std::map<RankId, int64_t> before_ns_;  // in acts, at the start of the window
  double seconds_ = 0;                   // of this window
};

}  // namespace weir::train
