// What the seed of a simulated recovery decides before the first event: the job, its mesh, what it
// does after a failure, and which faults come where. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/update_rate.h"
#include "runtime/store/checkpoint_folder.h"
#include "tests/chaos/recovery_model.h"
#include "tests/chaos/recovery_worker.h"
#include "tests/chaos/recovery_world.h"
#include "tools/launch/restart_policy.h"

namespace weir::chaos {

struct RecoveryScenario {
  RecoveryLayout layout;
  int64_t steps = 6, samples_per_step = 2;
  UpdateRate updates;
  int64_t checkpoint_every = 2;  // 0: no checkpoints
  store::Retention retention;
  bool is_elastic = true;  // otherwise all processes start again after a failure
  launch::RestartLimits limits;
  bool tells_broken = false;       // as in WorkerFacts
  bool changes_at_resume = false;  // a resumed run has another mesh and other batches
  int64_t poisoned_step = -1;      // a worker dies each time before this step; -1: none
  std::vector<RecoveryFault> faults;
};

RecoveryScenario DrawScenario(uint64_t seed);
// Gives the next start of the job another mesh and other batches.
void ChangeAtResume(RecoveryScenario* scenario);
WorkerFacts FactsOf(const RecoveryScenario& scenario);
// Returns "dp=2,tp=1 in 2 processes, 6 steps of 2 samples, ...; faults: ...".
std::string ToText(const RecoveryScenario& scenario);

}  // namespace weir::chaos
