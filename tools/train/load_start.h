// Loads the states with which a run begins: weights of another run (--init), or a checkpoint
// (--resume). Thread rule: one thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "tools/train/job_runner.h"
#include "tools/train/progress.h"
#include "tools/train/trainer.h"

namespace weir::train {

// Loads what `options` name into the ranks of `runner`; nothing if they name nothing. `resume` is
// the present path of options.resume. Errors: those of the files, of MapWeights, of CheckCheckpoint
// and of JobRunner::Load.
absl::Status LoadStart(const TrainOptions& options, const std::string& resume, JobRunner* runner,
                       const Clock& clock, Progress* progress);

}  // namespace weir::train
