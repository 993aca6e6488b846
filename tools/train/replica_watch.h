// Compares the replicas of weights every so many steps of a run, and before each checkpoint, so
// that no checkpoint is written from replicas that differ. Thread rule: one thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "tools/train/job_runner.h"

namespace weir::train {

class ReplicaWatch {
 public:
  // `every`: steps between two comparisons; 0: never.
  ReplicaWatch(int64_t every, int64_t first_step) : every_(every), last_step_(first_step) {}

  // Call between steps. Compares if it is time, or if `before_checkpoint`. kDataLoss (W0757):
  // replicas differ. Other errors are those of JobRunner::SumWeights.
  absl::Status Look(int64_t steps_done, bool before_checkpoint, JobRunner* runner);

 private:
  int64_t every_;
  int64_t last_step_;  // of the last comparison, or the first of the run
};

}  // namespace weir::train
