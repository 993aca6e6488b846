// What the seed of a simulated recovery decides before the first event: the job, its mesh, what it
// does after a failure, and which faults come where. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "runtime/base/update_rate.h"
#include "runtime/store/checkpoint_folder.h"
#include "tests/chaos/recovery_model.h"
#include "tests/chaos/recovery_worker.h"
#include "tests/chaos/recovery_world.h"
#include "tools/hosts/host_list.h"
#include "tools/launch/growth_policy.h"
#include "tools/launch/restart_policy.h"

namespace weir::chaos {

struct RecoveryScenario {
  RecoveryLayout layout;
  int64_t steps = 6;
  int64_t micro_batches = 1, rows = 1;  // rows of a micro-batch in each replica
  UpdateRate updates;
  int64_t checkpoint_every = 2;  // 0: no checkpoints
  store::Retention retention;
  bool is_elastic = true;  // otherwise all processes start again after a failure
  launch::RestartLimits limits;
  int64_t buddy_every = 0;  // steps between copies for buddies; 0: none
  hosts::HostList hosts;    // empty: one machine
  int spares = 0;           // the hosts at the end of the list that are in reserve
  int64_t min_devices = 0;  // 0: the mesh never becomes smaller
  // These limits say when a mesh that has become smaller grows again. Their times count events.
  launch::GrowthLimits growth = {.after_ms = 0};  // 0: it never grows again
  bool tells_broken = false;                      // as in WorkerFacts
  bool changes_at_resume = false;  // a resumed run has another mesh and other batches
  int64_t poisoned_step = -1;      // a worker dies each time before this step; -1: none
  int poison_signal = 0;           // by which it dies: its own, or one that others send
  std::vector<RecoveryFault> faults;
};

RecoveryScenario DrawScenario(uint64_t seed);
// Gives the next start of the job another mesh and other batches.
void ChangeAtResume(RecoveryScenario* scenario);
// Returns the job as the product knows it: its mesh and its micro-batches.
proto::Job JobOf(const RecoveryScenario& scenario);
// Returns the layout of such a job with so many processes.
RecoveryLayout LayoutOf(const proto::Job& job, const RecoveryScenario& scenario, int num_processes);
// Returns the samples of a step of such a job.
int64_t SamplesPerStep(const proto::Job& job, const RecoveryScenario& scenario);
std::shared_ptr<const WorkerFacts> FactsOf(const RecoveryScenario& scenario,
                                           const RecoveryLayout& layout,
                                           IdVector<WorkerId, std::vector<RankId>> ranks_of);
// Returns "dp=2,tp=1 in 2 processes, 6 steps of 2 samples, ...; faults: ...".
std::string ToText(const RecoveryScenario& scenario);

}  // namespace weir::chaos
