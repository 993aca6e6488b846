// Checks whether an output would destroy an input, another output or a checkpoint, and tries
// whether the outputs of a run can be written.
// Thread rule: functions that look at the file system and leave it as it is.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "tools/train/trainer.h"

namespace weir::train {

// kInvalidArgument (W0926): two outputs are the same file, or an output is the job, a file of its
// data, the map of weights beside the job, the file of --init or --resume, or a file that such an
// index or checkpoint folder names. A checkpoint may replace the one file that the run resumes
// from, and saved weights may replace the one file that the run starts from. Links are followed.
// Devices and pipes are never in conflict. (W0840): as CheckNameOfWeights.
absl::Status CheckOutputPaths(const proto::Job& job, const TrainOptions& options);

// Tries every output before the first step, as far as that can be known then: makes a temporary
// file or folder in its place, and removes it. A file that is there stays as it is. Not for a
// sandbox, which makes no files. When a run starts again (RunFolder::has_begun), no output is
// tried: a disk that refuses one by then costs the output, not the run. Errors: those of
// CheckOutsideOfCheckpoints for each output, and of CheckPlaceOfCheckpoints; CannotWrite, or
// kNotFound (W0075): the output cannot be written.
absl::Status TryOutputs(const TrainOptions& options);

// kInvalidArgument (W0926): `output`, the value of `flag`, is a committed checkpoint of a folder or
// a place in one, or the file `latest` of such a folder. A checkpoint is replaced and removed as a
// whole, so nothing else may be in it. No output at all ("") is no error.
absl::Status CheckOutsideOfCheckpoints(const std::string& flag, const std::string& output);

// kInvalidArgument (W0926): the file of an output, such as "--export page.html", is one of the
// inputs, or as CheckOutsideOfCheckpoints: a checkpoint is an input of later runs.
absl::Status CheckOutputIsNoInput(const std::string& flag, const std::string& output,
                                  const std::vector<std::string>& inputs);

// kInvalidArgument (W0840): a file of weights would have the name of a job or a map, which ends in
// ".textproto".
absl::Status CheckNameOfWeights(const std::string& flag, const std::string& output);

}  // namespace weir::train
