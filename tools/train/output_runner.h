// An OutputRunner holds the ranks of a job that runs its model for its results (OutputsJob), and
// computes its steps. The ranks are in this process or in worker processes (FleetOutputs,
// tools/fleet/fleet_outputs.h). The results do not depend on it.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/logical_plan.h"
#include "proto/job.pb.h"
#include "runtime/store/dataset.h"
#include "runtime/store/safetensors.h"
#include "tools/weights/averages.h"
#include "tools/weights/mapped_weights.h"

namespace weir::train {

struct OutputOrder {
  const proto::Job* job = nullptr;  // of OutputsJob
  store::DataUse use = store::DataUse::kInOrder;
  std::shared_ptr<const store::SafetensorsReader> weights;  // null: the first values
  std::string job_file;         // where a map of weights may lie; empty: nowhere
  weights::WeightTypes unused;  // weights of the file that no state of the plan is
  weights::Values values = weights::Values::kWeights;  // as which `weights` was opened
};

class OutputRunner {
 public:
  virtual ~OutputRunner() = default;
  // Compiles the job, loads the ranks, opens the data, and loads the weights. Returns the plan.
  virtual absl::StatusOr<std::shared_ptr<const compiler::LogicalPlan>> Open(
      const OutputOrder& order) = 0;
  // Runs the next step, which has the next samples.
  virtual absl::Status RunStep() = 0;
  // Returns `bytes` bytes from `begin` on of an output of the last step, a dense row-major tensor.
  virtual absl::StatusOr<std::string> Read(const std::string& output, int64_t begin,
                                           int64_t bytes) = 0;
};

// All ranks in this process. `threads` of each device; 0: all cores, shared evenly.
std::unique_ptr<OutputRunner> MakeLocalOutputs(int threads);

}  // namespace weir::train
