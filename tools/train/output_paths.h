// Whether what a run writes would destroy what the run reads, or another of its outputs.
// Thread rule: a function that looks at the file system and changes nothing.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "tools/train/trainer.h"

namespace weir {

// kInvalidArgument (W0926) if two outputs are one file, or if an output is the job, a file of its
// data, or the file of
// --init or --resume. A checkpoint may replace the one that the run resumes from, and saved weights
// those that it starts from. Links are followed; devices and pipes are nobody's file.
absl::Status CheckOutputPaths(const Job& job, const TrainOptions& options);

}  // namespace weir
