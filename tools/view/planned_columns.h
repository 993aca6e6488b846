// The columns of a step as its plan expects it (tools/trace/replay.h) in a RunBundle. run_bundle.h
// says what they hold. Thread rule: pure functions.
#pragma once

#include <vector>

#include "tools/trace/replay.h"
#include "tools/view/bundle_writer.h"

namespace weir::view {

// Adds those of `acts` that a pipeline hands from stage to stage: forward, backward and gradients
// of weights.
void AddPlannedColumns(const trace::RecordedRun& run, const std::vector<trace::ReplayedAct>& acts,
                       BundleWriter* writer);

}  // namespace weir::view
