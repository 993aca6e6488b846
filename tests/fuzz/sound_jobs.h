// The jobs of the golden files: small, sound, and of many kinds. What mutations begin with.
// Thread rule: reads files under the current folder, which is the root of the tree.
#pragma once

#include <vector>

#include "proto/job.pb.h"

namespace weir {

// In the order of their paths; none if this is not the root of the tree.
std::vector<Job> SoundJobs();

}  // namespace weir
