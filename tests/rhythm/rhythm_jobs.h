// Jobs for tests of the rhythm solve: small GPTs over many meshes.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace weir::rhythm {

struct RhythmJob {
  std::string name;
  proto::Job job;
};

// Returns jobs with every kind of layout, within and beyond one host, even and uneven.
std::vector<RhythmJob> JobsOfManyLayouts();

// Returns a GPT of `layers` blocks over `mesh`.
proto::Job SmallGptJob(const std::string& mesh, int layers, int micro_batches, int zero_stage = 0);

}  // namespace weir::rhythm
