// Says of the ranks of a run what people, and programs that watch the run, want to know.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "tools/live/live_run.h"
#include "tools/train/event_file.h"
#include "tools/train/job_runner.h"
#include "tools/train/prepare_training.h"

namespace weir::train {

// Returns the facts of a run that follow from its ranks and its plans.
live::RunFacts RunFactsOf(const RunnerFacts& facts, const PreparedTraining& prepared);

// Returns "gpt: 1.2M parameters, 4 devices (dp=2,tp=2) in 4 processes, 1 thread each, 3.1 MiB per
// device". `driver_bytes`: of the memory of each device, for its driver; 0: none.
std::string WhatRunsText(const std::string& job, const RunnerFacts& facts, int64_t driver_bytes);

// Returns "states read from run/step-000000400: 1.5 MiB in 10ms", of all states of the ranks.
std::string StatesReadText(const RunnerFacts& facts, const std::string& path, int64_t took_ns);

// Adds what copies in the memory of other processes have cost since the last row to a row, by the
// names of docs/reference/metrics.md.
void AddCopyCosts(const CopyCosts& costs, EventFile::Scalars* values);

// Returns what follows the text of a recovery: from which file the states come if memory did not
// have them, and that steps count which were done beyond the last one that the starter knows.
// `checkpoint`: the one that is loaded then; empty: none. `steps_lost`: below 0: so many steps
// count.
std::string GoesOnText(const Recovery& recovery, const std::string& checkpoint, int64_t steps_lost);

}  // namespace weir::train
