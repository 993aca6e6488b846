// Says before the first step what the loss of a process will cost.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace weir::fleet {

// Facts that decide what a loss costs.
struct LossFacts {
  enum class OnFailure : uint8_t { kStop, kRestart, kElastic } on_failure = OnFailure::kStop;
  // The checkpoints of the run. At most one of the two paces is above 0; without one, the only
  // checkpoint is that of the end.
  bool has_checkpoints = false;
  int64_t checkpoint_every = 0;  // steps
  double checkpoint_every_seconds = 0;
  // The rest counts with OnFailure::kElastic alone, as ranks are spread over processes and hosts
  // now.
  bool keeps_states = false;  // processes keep copies of their states in memory
  int64_t buddy_every = 0;    // buddies keep copies of lone states, every so many steps; 0: none do
  // The ranks of the processes whose states end with the process, or with its host: neither another
  // process, or host, nor a buddy has them.
  std::vector<RankId> end_with_process, end_with_host;
  bool all_end_with_process = false;  // end_with_process has the ranks of all processes
  bool has_other_process = false;  // a buddy could keep states: the job has two processes or more
};

// Returns a line for people.
std::string LossOutlook(const LossFacts& facts);

}  // namespace weir::fleet
