// Does everything that comes before the first step of a training, except for the ranks themselves:
// compiles the job, proves its plans, compares its memory with the machine's, opens its data and
// reads the data at both ends, and checks the files that the command names. `weir check` and `weir
// train` both use this code, so both refuse the same jobs with the same words.
//
// Preparation starts nothing. It tries whether outputs can be written, and leaves no file behind.
// Thread rule: pure functions except for reading files and the system's facts about its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/store/dataset.h"
#include "tools/train/memory_budget.h"
#include "tools/train/trainer.h"

namespace weir::train {

// The parts that `weir check` may leave out. `weir train` leaves nothing out at its start.
struct PrepareScope {
  enum class Data : uint8_t { kOpen, kLeave } data = Data::kOpen;
  // kThis: checks memory, devices and threads of this machine.
  enum class Machine : uint8_t { kThis, kAny } machine = Machine::kThis;
  // kTried: TryOutputs (output_paths.h) has tried the outputs, before a sandbox that makes no
  // files. kLeave: a run that goes on changes its mesh. Its states come from its ranks, or from a
  // checkpoint of its own, and the checkpoint that it resumed may be gone by then (--keep). Without
  // it first_step and sample_offset stay 0.
  enum class Files : uint8_t { kCheck, kTried, kLeave } files = Files::kCheck;
};

struct PreparedTraining {
  std::shared_ptr<const store::Dataset> dataset;  // null: Data::kLeave
  TrainingPlans plans;
  int64_t actors = 0;  // the most of any rank that was checked
  // The need of the rank that needs most, with its evaluation (memory_budget.h).
  int64_t bytes_per_device = 0;
  IdVector<RankId, int64_t> bytes_of_rank;   // likewise of each rank, as its stage needs
  int64_t first_step = 0;                    // steps done in the checkpoint that the run resumes
  int64_t sample_offset = 0;                 // of the training data (store::BatchPosition)
  std::vector<std::string> notes, warnings;  // sentences
};

// Only files, threads, costs and the checkpoint's rhythm in `options` count. kInvalidArgument: the
// job is rejected. kNotFound or kDataLoss: an error of a file.
absl::StatusOr<PreparedTraining> PrepareTraining(const proto::Job& job, const TrainOptions& options,
                                                 const PrepareScope& scope);

// Checks that the job's collectives work between its processes: the local library, and the
// emulation of NCCL, are for the ranks of one process, and NCCL is for ranks with a process and a
// GPU each. `processes` 0: one, or with hosts as many as these have slots. kInvalidArgument (W0955,
// and those of CheckNcclPlacement); kUnavailable: NCCL is not here.
absl::Status CheckCollectives(const proto::Job& job, int num_ranks, int processes, int hosts,
                              PrepareScope::Machine machine);

// Returns why the job, which leaves its collectives open, cannot have NCCL there; empty: it can.
std::string ObstacleToNccl(const proto::Job& job, int processes, int hosts,
                           PrepareScope::Machine machine);

// Checks that the options go together, and reads no file. kInvalidArgument: W0074.
absl::Status CheckOptions(const TrainOptions& options);

struct PreparedEvaluation {
  std::shared_ptr<const store::Dataset> dataset;
  std::shared_ptr<const compiler::LogicalPlan> plan;
};

// Prepares an evaluation of weights in the same way. `job_file` is where a map of weights may lie
// (tools/weights/find_weights.h). kInvalidArgument (W0077): nothing is held out.
absl::StatusOr<PreparedEvaluation> PrepareEvaluation(const proto::Job& job,
                                                     const std::string& weights,
                                                     int threads_per_device,
                                                     const std::string& job_file,
                                                     weights::Values values);

// Returns the number of batches in an evaluation of `job`. 0: nothing is held out.
int64_t EvaluationBatches(const proto::Job& job, const store::Dataset& dataset);

}  // namespace weir::train
