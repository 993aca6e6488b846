// Finds, while a job runs, a rank that is slower than other ranks with the same work: the rank's
// acts exceed their planned times by more than the acts of its peers do. Peers are ranks of one
// stage whose plans promise the same work.
//
// Machines are noisy, so a short delay names no rank. A window is some seconds of steps. A rank
// must be slower by a factor in several windows in a row, and is named only once. A shared or hot
// device, a core with another program, and a process that is stopped now and then all show. Waiting
// for other ranks does not show, because only time in acts counts. Not here: which acts were slow
// (weir trace report). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/session/session.h"

namespace weir::train {

struct StragglerWatchOptions {
  double window_seconds = 2;
  int windows = 3;      // in a row
  double factor = 1.5;  // of the median of its peers
};

// A Straggler is a rank that was found to be slow.
struct Straggler {
  RankId rank;
  // "for 6 s its acts have taken 3.0 times as long as the same acts of rank 0; …"
  std::string evidence;
  std::string Text() const;  // "rank 1 is slow: for 6 s …"
};

class StragglerWatch {
 public:
  explicit StragglerWatch(StragglerWatchOptions options = {}) : options_(options) {}

  // Call after each burst of steps. `work` is the work of the ranks since the job began, and
  // `seconds` is the length of the burst. Returns each rank that is now found to be slow;
  // mostly nothing.
  std::vector<Straggler> Look(const std::vector<actors::RankWorkReport>& work, double seconds);

 private:
  struct Rank {
    actors::RankWorkReport before;  // at the start of the window
    int slow_windows = 0;
    bool named = false;
  };
  std::vector<Straggler> EndWindow(const std::vector<actors::RankWorkReport>& work);

  const StragglerWatchOptions options_;
  double seconds_ = 0;  // of this window
  double slow_seconds_ = 0;
  std::map<RankId, Rank> ranks_;
};

}  // namespace weir::train
