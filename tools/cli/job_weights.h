// The weights of a job, and files of weights, as the verbs read both.
// Thread rule: pure functions, except for reading files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "runtime/store/safetensors.h"
#include "tools/train/trainer.h"
#include "tools/weights/averages.h"
#include "tools/weights/mapped_weights.h"

namespace weir::cli {

// Returns the weights that a job has, whatever its mesh. Errors are those of a compilation.
absl::StatusOr<weights::WeightTypes> WeightsOfJob(proto::Job job);

// Opens a file of weights, or the file in a folder (weights::WeightFileOf), without reading it.
// Errors: those of WeightFileOf and weights::OpenValues.
absl::StatusOr<std::shared_ptr<const store::SafetensorsReader>> OpenWeights(
    const std::string& path, weights::Values values = weights::Values::kWeights);

// Returns a note for people if the job has adapters and the weights in `path` have none, so that
// the job computes what it computes without them; else "". Errors: those of MapWeights.
absl::StatusOr<std::string> NoteOfAdapters(const proto::Job& job, const std::string& path,
                                           const std::string& job_file);

// Returns the inputs that processes read to begin with the weights in `path`: the weights, and the
// constants of the map beside the job. An index stands for all files that it names.
std::vector<std::string> InputsOfWeights(const std::string& path, const std::string& job_file);

// Adds the files that processes read to begin with options.init or options.resume to `files`,
// unless they are there.
void AddFilesOfStart(const train::TrainOptions& options, std::vector<std::string>* files);

}  // namespace weir::cli
