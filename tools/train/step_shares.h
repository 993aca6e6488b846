// Divides the time of a step by cause while a job runs: the account that each rank keeps
// (actors/engine/step_account.h) against the time that the steps took. Time that a rank's account
// does not have, such as that after its last act of a burst, counts as between acts, as in the
// report of a trace. Thread rule: one thread at a time.
#pragma once

#include <map>
#include <vector>

#include "actors/session/session.h"

namespace weir::train {

// Returns the shares of `seconds` by actors::TimePart, which sum to 1. `before` and `now` are a
// rank's account at the start and at the end of that time.
std::vector<double> SharesOf(const actors::TimeParts& before, const actors::TimeParts& now,
                             double seconds);

class StepShares {
 public:
  // Call after each burst of steps. `work` is the work of the ranks since the job began, and
  // `seconds` is the length of the burst. Returns the shares of the burst, mean of all ranks; empty
  // if there are no ranks.
  std::vector<double> Look(const std::vector<actors::RankWorkReport>& work, double seconds);

 private:
  std::map<RankId, actors::TimeParts> before_;  // at the start of the burst
};

}  // namespace weir::train
