// Checks whether a run's output would destroy its input, or another of its outputs.
// Thread rule: a function that looks at the file system and changes nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "tools/train/trainer.h"

namespace weir::train {

// kInvalidArgument (W0926): two outputs are the same file, or an output is the job, a file of its
// data, the map of weights beside the job, or the file of --init or --resume. A checkpoint may
// replace the checkpoint that the run resumes from, and saved weights may replace the weights that
// the run starts from. Links are followed. Devices and pipes are never in conflict. (W0840): as
// CheckNameOfWeights.
absl::Status CheckOutputPaths(const proto::Job& job, const TrainOptions& options);

// kInvalidArgument (W0926): the file of an output, such as "--export page.html", is one of the
// inputs.
absl::Status CheckOutputIsNoInput(const std::string& flag, const std::string& output,
                                  const std::vector<std::string>& inputs);

// kInvalidArgument (W0840): a file of weights would have the name of a job or a map, which ends in
// ".textproto".
absl::Status CheckNameOfWeights(const std::string& flag, const std::string& output);

}  // namespace weir::train
