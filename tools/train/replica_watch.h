// Compares the replicas of weights every so many steps of a run, and before each checkpoint, so
// that no checkpoint is written from replicas that differ. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "tools/train/job_runner.h"

namespace weir::train {

class ReplicaWatch {
 public:
  // `every`: steps between two comparisons; 0: never.
  ReplicaWatch(int64_t every, int64_t first_step)
      : every_(every), first_step_(first_step), last_step_(first_step), begin_step_(first_step) {}

  // Call when other ranks go on with the states after `steps_done` steps. They may have replicas
  // where those before had none, and are compared also where those before were.
  void GoBackTo(int64_t steps_done);
  // Call between steps. Compares if it is time, or if `before_checkpoint`. kDataLoss (W0757):
  // replicas differ. Other errors are those of JobRunner::SumWeights.
  absl::Status Look(int64_t steps_done, bool before_checkpoint, JobRunner* runner);

 private:
  const int64_t every_;
  const int64_t first_step_;
  bool has_replicas_ = true;  // as far as is known
  int64_t last_step_;         // of the last comparison of these ranks, or the first of the run
  int64_t begin_step_;        // with which the states began that have been computed since
  // After these steps all replicas were equal; nullopt: nobody has compared them since begin_step_.
  std::optional<int64_t> equal_step_;
};

}  // namespace weir::train
