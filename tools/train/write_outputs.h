// Runs the data of a job through its model, and writes the results: a .npy file for each output,
// whose rows are the samples in order, each sample once.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/train/output_runner.h"
#include "tools/weights/averages.h"

namespace weir::train {

struct WriteOutputsOptions {
  std::string folder;                // made if it is not there
  std::vector<std::string> outputs;  // tensors of main; empty: the outputs of main
  std::string init;                  // weights; empty: the model has none
  weights::Values values = weights::Values::kWeights;  // of `init`
  std::string job_file;               // where a map of weights may lie; empty: nowhere
  OutputRunner* runner = nullptr;     // null: all ranks are in this process
  int threads = 0;                    // of each device of this process; 0: all cores, shared evenly
  std::function<bool()> interrupted;  // asked before each step: whether to give up; null: never
};

struct WrittenOutput {
  std::string path;
  std::string type;  // "f32[1000, 10]", for people
};
struct WrittenOutputs {
  int64_t samples = 0;
  int64_t steps = 0;
  std::string data;  // what was run, for people
  std::vector<WrittenOutput> files;
};

// An output whose first dimension counts the samples gives a row for each sample. If the samples
// do not fill the last step, its other rows are dropped; a model in which samples depend on each
// other is then refused. Any other output gives a row for each step. The files appear when all of
// them are complete, and replace files of their names.
//
// Errors: W0077 nothing is held out (a job with a loss runs its held-out samples, as an evaluation
// does); W0617, W0618; W0619 two outputs would have one file; W0620 the last step is not full, and
// samples depend on each other; W0621 the model has weights, and `init` is empty; kCancelled:
// interrupted; those of the compiler, the data, the weights and the runner.
absl::StatusOr<WrittenOutputs> WriteOutputs(const proto::Job& job,
                                            const WriteOutputsOptions& options);

// Prepares such a run as `weir check` does: everything of WriteOutputs that comes before the ranks,
// and their memory. Returns the plan.
absl::StatusOr<std::shared_ptr<const compiler::LogicalPlan>> PrepareOutputs(
    const proto::Job& job, const WriteOutputsOptions& options, WrittenOutputs* facts);

}  // namespace weir::train
