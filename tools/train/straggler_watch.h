// Finds, while a job runs, a rank that is slower than others which do the same: its acts take
// longer than their plan says by more than those of its peers do. Peers are ranks of one stage
// whose plans promise the same work.
//
// Machines are noisy, so nobody is named for a moment's delay: a window is some seconds of steps, a
// rank must be slower by a factor in several windows in a row, and is named once. A device that
// others share or that is hot, a core that another program has too, a process that is stopped now
// and then all show; waiting for others does not, since only time in acts counts. Not here: what it
// was slow at (weir trace report). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/launch.h"

namespace weir {

struct StragglerWatchOptions {
  double window_seconds = 2;
  int windows = 3;      // in a row
  double factor = 1.5;  // of the median of its peers
};

class StragglerWatch {
 public:
  explicit StragglerWatch(StragglerWatchOptions options = {}) : options_(options) {}

  // After each burst of steps: what the ranks have done since the job began, and how long the burst
  // took. Returns a line for each rank that is now found to be slow; empty mostly.
  std::vector<std::string> Look(const std::vector<RankWorkReport>& work, double seconds);

 private:
  struct Rank {
    RankWorkReport before;  // as the window began
    int slow_windows = 0;
    bool named = false;
  };
  std::vector<std::string> EndWindow(const std::vector<RankWorkReport>& work);

  const StragglerWatchOptions options_;
  double seconds_ = 0;  // of this window
  double slow_seconds_ = 0;
  std::map<int, Rank> ranks_;
};

}  // namespace weir
