// Jobs to solve the rhythm of: small GPTs over many meshes.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace weir::testing {

struct RhythmJob {
  std::string name;
  Job job;
};

// Every kind of layout, in and out of one host, even and uneven.
std::vector<RhythmJob> JobsOfManyLayouts();

// `layers` blocks over `mesh`.
Job SmallGptJob(const std::string& mesh, int layers, int micro_batches, int zero_stage = 0);

}  // namespace weir::testing
