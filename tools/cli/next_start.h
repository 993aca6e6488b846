// The checkpoint from which a run goes on after a failure: the choice for the next start of the
// processes, and the line that tells people from where they can go on themselves.
// Thread rule: one thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/cli/ongoing_run.h"
#include "tools/train/trainer.h"

namespace weir::cli {

// Lets the next start resume the newest checkpoint from which the run can go on, and says which
// newer ones are passed over. If the run has none, the next start begins as the first one.
void ChooseNextStart(train::TrainOptions* options, OngoingRun* run);
// Decides whether the run makes a start once more. The start follows on a failure, and has failed
// itself with `status`, although no process has failed. If the start had loaded all ranks, the run
// does not make it once more: the error is not one of the checkpoint. RunFolder::GoBackFurther
// decides on all other starts. If the run makes the start once more, this function chooses another
// checkpoint for the start and says so.
bool ChooseAnotherStart(const absl::Status& status, train::TrainOptions* options, OngoingRun* run);
// Returns with what a start begins, for people.
std::string StartText(const train::TrainOptions& options);

// Returns the path of the checkpoint from which the run can go on; empty: none is there.
std::string CheckpointToGoOnFrom(OngoingRun* run);

}  // namespace weir::cli
