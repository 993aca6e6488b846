// Turns a trained job into a job that evaluates, or that generates text. The model is the same, and
// the names of weights stay, so the weights carry over.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/weights/averages.h"

namespace weir::train {

// Returns the job without dropout, otherwise unchanged.
proto::Job EvaluationJob(const proto::Job& job);

// Returns whether evaluations during a training of the job compute with the averages of weights.
bool EvaluatesAverages(const proto::Job& job);
// Returns what an evaluation after `steps` steps of that training computes with. The first update
// sets the averages; before it, they are zeros, and the weights are evaluated.
weights::Values EvaluatedValues(const proto::Job& job, int64_t steps);

// Returns the job as one that runs its model for its results, without a loss: no dropout, one
// micro-batch. `outputs` are tensors of main; none: the outputs of main.
proto::Job OutputsJob(const proto::Job& job, const std::vector<std::string>& outputs);

// kMeshOfJob: the mesh, the layouts and the stages are those of the job.
enum class GenerationDevices : uint8_t { kOneDevice, kMeshOfJob };

// A language model that runs on one window of each sequence at a time.
struct GenerationVariant {
  proto::Job job;      // one micro-batch of `rows` samples, no dropout
  proto::Job written;  // the same with as many samples as the given job, for DecodeJobOf
  std::string input;   // of main: the windows of tokens, i32[rows, window]
  int64_t window = 1;
  int64_t below = 0;  // tokens are from 0 to below this
};
// The input is the only input of main that looks up rows of a table and is i32[samples, window].
// kInvalidArgument (W0070): there is no such input, or more than one.
absl::StatusOr<GenerationVariant> GenerationJob(
    const proto::Job& job, int64_t rows = 1,
    GenerationDevices devices = GenerationDevices::kOneDevice);

}  // namespace weir::train
