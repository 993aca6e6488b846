// The jobs of the golden files: small, sound, and of many kinds. Mutations start from these jobs.
// Thread rule: reads files under the current folder, which is the root of the tree.
#pragma once

#include <vector>

#include "proto/job.pb.h"

namespace weir::fuzz {

// Returns the jobs in the order of their paths; none if the current folder is not the root of the
// tree.
std::vector<proto::Job> SoundJobs();

}  // namespace weir::fuzz
