// Whether a job fits the memory of its devices, before anything of it starts; and if not, what
// would make it fit. Thread rule: pure functions but for reading what the system says of its
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "runtime/store/dataset.h"

namespace weir {

// What the devices of a job may take.
struct MemoryBudget {
  int64_t device_bytes = 0;   // each of them (runtime.memory_bytes_max); 0: not said
  int64_t machine_bytes = 0;  // all of them together
  std::string machine;        // for messages: "this machine", "the control group of this process"
};

// The machine's is its memory or that of the control group this process is in, whichever is less.
MemoryBudget BudgetOf(const Job& job);

// A training job that evaluates has two sessions open, each with memory of its own.
enum class Beside : uint8_t { kNothing, kEvaluation };

struct MemoryNeed {
  int64_t rank = 0;          // the one that needs most
  int64_t bytes = 0;         // of that rank: its arena, and the workspace of its kernels
  int64_t beside_bytes = 0;  // of these, for what is beside
  double all_bytes = 0;      // of all ranks
};

// On meshes of more than 16 devices the first rank of each stage stands for its stage: where shards
// are not alike, the first are the larger. Kernels are made for the first rank of each stage, if
// this machine could hold it, to see what workspace they take.
absl::StatusOr<MemoryNeed> NeedOf(const LogicalPlan& plan, Beside beside);

// The same, and the plans of the ranks that were looked at: among them the first of each stage, and
// the one that needs most.
struct NeedAndPlans {
  MemoryNeed need;
  std::map<int64_t, RankPlan> plans;  // by rank
};
absl::StatusOr<NeedAndPlans> NeedAndPlansOf(const LogicalPlan& plan, Beside beside);

// Of plans for all ranks, with nothing beside.
MemoryNeed NeedOf(const std::vector<RankPlan>& plans, int threads_per_device);

// kInvalidArgument (W0487) if more is needed than there is: how much, the largest tensors, and each
// change of the job that needs less, with what would then be needed (ZeRO, recomputation,
// micro-batches, slots, all together). Each is compiled to say so.
absl::Status CheckNeed(const LogicalPlan& plan, Beside beside, const MemoryNeed& need,
                       const MemoryBudget& budget);

// What a training job with its data has open at the same time.
struct TrainingPlans {
  std::shared_ptr<const LogicalPlan> training;
  std::shared_ptr<const LogicalPlan> evaluation;  // null: nothing is held out
};
// Without a dataset (null) the evaluation is left out.
absl::StatusOr<TrainingPlans> CompileTraining(const Job& job, const Dataset* dataset);

// `threads_per_device`: as ThreadsPerDevice's `asked`; kernels take workspace by it.
absl::StatusOr<NeedAndPlans> NeedOf(const TrainingPlans& plans, int threads_per_device);

// For people, without a newline: "fits: all 4 ranks need 166.7 MiB of the 23.5 GiB of this machine;
// rank 0 needs most, ...".
std::string NeedText(const LogicalPlan& plan, const MemoryNeed& need, const MemoryBudget& budget);

}  // namespace weir
