// All that comes before the first step of a training, but for the ranks themselves: the job is
// compiled, its plans are proven, its memory is compared with the machine's, its data is opened and
// read at its ends, the files that the command names are looked at. `weir check` and `weir train`
// both come here, so what one refuses the other refuses too, with the same words.
//
// Nothing is started, and no file is written or made.
// Thread rule: pure functions but for reading files and what the system says of its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/store/dataset.h"
#include "tools/train/memory_budget.h"
#include "tools/train/trainer.h"

namespace weir {

// What `weir check` may leave out; `weir train` leaves nothing out.
struct PrepareScope {
  enum class Data : uint8_t { kOpen, kLeave } data = Data::kOpen;
  // Memory, devices and threads of this machine.
  enum class Machine : uint8_t { kThis, kAny } machine = Machine::kThis;
};

struct PreparedTraining {
  std::shared_ptr<const Dataset> dataset;  // null: Data::kLeave
  TrainingPlans plans;
  int64_t actors = 0;  // most of any rank looked at
  int64_t bytes_per_device =
      0;  // what the rank that needs most needs, with its evaluation (memory_budget.h)
  int64_t first_step = 0;  // steps done in the checkpoint that the run goes on from
  std::vector<std::string> notes, warnings;  // sentences
};

// Of `options` files, threads and the checkpoint's rhythm count. kInvalidArgument the job is
// rejected, kNotFound or kDataLoss a file.
absl::StatusOr<PreparedTraining> PrepareTraining(const Job& job, const TrainOptions& options,
                                                 const PrepareScope& scope);

struct PreparedEvaluation {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const LogicalPlan> plan;
};

// The same for the evaluation of weights. kInvalidArgument (W0077) if nothing is held out.
absl::StatusOr<PreparedEvaluation> PrepareEvaluation(const Job& job, const std::string& weights,
                                                     int threads_per_device);

// Batches that an evaluation of `job` goes through; 0: nothing is held out.
int64_t EvaluationBatches(const Job& job, const Dataset& dataset);

}  // namespace weir
