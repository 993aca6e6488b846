// Losses are those failures after which other processes of a job can live on: a process ended, its
// connection broke, it is silent, it has said no hello, or it is given up as slow. This file
// decides which processes start anew, and what an epoch forgets of the failures before it. Thread
// rule: pure functions over values; ProcessEpochs by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/launch/failure_report.h"

namespace weir::fleet {

// Returns whether the failure takes the process of its worker away. A worker that only reports a
// failure lives, and a job without progress has lost nobody.
bool IsLoss(const launch::FailureEvent& event);
// Returns the workers that the events take away, each once, ascending.
std::vector<WorkerId> LostWorkers(const std::vector<launch::FailureEvent>& events);
// Returns the workers that start anew in the next epoch, ascending: those that are lost, and those
// that are not there, that is, whose process does not run or is not connected. The end of such a
// process may not be noticed yet, and a process that has not said hello would say it for the old
// epoch.
std::vector<WorkerId> WorkersToReplace(std::vector<WorkerId> lost,
                                       const IdVector<WorkerId, bool>& is_there);
// Drops the events that an epoch with new processes for `replaced` settles. The losses of other
// workers stay, because the next epoch must settle them.
void DropSettled(const std::vector<WorkerId>& replaced, std::vector<launch::FailureEvent>* events);

// A ProcessEpochs knows in which epoch the process of each worker was started.
class ProcessEpochs {
 public:
  // All processes were started in this epoch.
  ProcessEpochs(size_t num_workers, uint32_t epoch) : epochs_(num_workers, epoch) {}

  // Notes that the processes of these workers start in this epoch, which is later than all before.
  void Start(const std::vector<WorkerId>& workers, uint32_t epoch);
  // Returns whether a loss that was found in this epoch is that of the worker's process. A loss of
  // an earlier epoch is, too, unless the process has started anew since then.
  bool IsOfProcess(WorkerId worker, uint32_t epoch_of_loss) const {
    return epoch_of_loss >= epochs_[worker];
  }

 private:
  IdVector<WorkerId, uint32_t> epochs_;
};

}  // namespace weir::fleet
