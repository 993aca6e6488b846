// Checks whether a job fits the memory of its devices before the job starts, and suggests changes
// that make the job fit. Thread rule: pure functions except for reading the system's facts about
// its memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "runtime/store/dataset.h"
#include "tools/live/live_run.h"

namespace weir::train {

// The memory that the devices of a job may take.
struct MemoryBudget {
  int64_t device_bytes = 0;   // each device (runtime.memory_bytes_max); 0: not given
  int64_t machine_bytes = 0;  // all devices together
  std::string machine;        // for messages: "this machine", "the control group of this process"
};

// Returns the budget. The machine's limit is its memory or that of the control group of this
// process, whichever is less. A job on GPUs has the memory of this machine's GPUs, or, where there
// are none, that of as many H100s as it has devices.
MemoryBudget BudgetOf(const proto::Job& job);

// A training job that evaluates has two open sessions. The evaluation reads the weights where the
// training has them, and has its own memory for everything else.
enum class Beside : uint8_t { kNothing, kEvaluation };

struct MemoryNeed {
  RankId rank = RankId(0);   // the rank that needs most
  int64_t bytes = 0;         // of that rank: its arena, and the workspace of its kernels
  int64_t beside_bytes = 0;  // the part of `bytes` for the evaluation beside it
  int64_t graph_bytes = 0;   // the part of `bytes` for graphs of kernels, which is an estimate
  int64_t driver_bytes = 0;  // the part of `bytes` for the driver of the device and its libraries
  double all_bytes = 0;      // of all ranks
  std::map<int64_t, int64_t> bytes_of_stage;  // of the rank that needs most of each stage
};

// Returns the need of the ranks. On meshes of more than 16 devices the first rank of each stage
// stands for its stage, because among uneven shards the first are the larger. To find the workspace
// of kernels, NeedOf makes the kernels of the first rank of each stage, if this machine could hold
// that rank.
absl::StatusOr<MemoryNeed> NeedOf(const compiler::LogicalPlan& plan, Beside beside);
// The same for a plan of any mode. A plan for training counts with an evaluation beside it.
absl::StatusOr<MemoryNeed> NeedOf(const compiler::LogicalPlan& plan);

// The need, and the plans of the checked ranks. These ranks include the first rank of each stage
// and the rank that needs most. On large meshes the need alone takes less time, because stages of
// equal work share a plan.
struct NeedAndPlans {
  MemoryNeed need;
  std::map<RankId, proto::RankPlan> plans;
};
absl::StatusOr<NeedAndPlans> NeedAndPlansOf(const compiler::LogicalPlan& plan, Beside beside);
// The same for a plan of any mode. A plan for training counts with an evaluation beside it.
absl::StatusOr<NeedAndPlans> NeedAndPlansOf(const compiler::LogicalPlan& plan);

// Returns the need of plans for all ranks, with nothing beside.
MemoryNeed NeedOf(const std::vector<proto::RankPlan>& plans, int threads_per_device);

// Adds what the driver and its libraries take of the memory of each device. Of ranks that share a
// device in one process, each counts as if it had a device of its own.
void AddDriver(int64_t bytes_per_device, int64_t num_ranks, MemoryNeed* need);

// Returns the bytes of the weights and the states of the optimizer, each element once, of a job
// whose ranks have these plans. A run that writes checkpoints into a folder copies them into the
// memory of its hosts: about 1/p of them for each of p devices.
double CheckpointCopyBytes(const std::map<RankId, proto::RankPlan>& plans);

// Returns whether the need is within the budget.
bool Fits(const MemoryNeed& need, const MemoryBudget& budget);

// kInvalidArgument (W0487): the job needs more than there is. The error gives the need, the largest
// tensors, and each change of the job that needs less, with the need after the change (ZeRO,
// recomputation, micro-batches, slots, all together). Each change is compiled to find that need.
absl::Status CheckNeed(const compiler::LogicalPlan& plan, Beside beside, const MemoryNeed& need,
                       const MemoryBudget& budget);

// The plans that a training job with its data has open at the same time.
struct TrainingPlans {
  std::shared_ptr<const compiler::LogicalPlan> training;
  std::shared_ptr<const compiler::LogicalPlan> evaluation;  // null: nothing is held out
};
// Compiles the plans. Without a dataset (null) there is no evaluation plan. Here and below, `tell`
// must not be null.
absl::StatusOr<TrainingPlans> CompileTraining(const proto::Job& job, const store::Dataset* dataset,
                                              const compiler::CostModel* costs,
                                              const live::TellDoing& tell);

// `threads_per_device` is the `asked` of ThreadsPerDevice; the workspace of kernels depends on it.
absl::StatusOr<NeedAndPlans> NeedOf(const TrainingPlans& plans, int threads_per_device,
                                    const live::TellDoing& tell);

// Returns a sentence for people, without a newline: "fits: all 4 ranks need 166.7 MiB of the 23.5
// GiB of this machine; rank 0 needs most, ...".
std::string NeedText(const compiler::LogicalPlan& plan, const MemoryNeed& need,
                     const MemoryBudget& budget);

}  // namespace weir::train
