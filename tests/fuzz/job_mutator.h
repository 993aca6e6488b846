// Small changes to a job that keep it a job: a field dropped, repeated, swapped with its
// neighbour, a number made telling, a name replaced by another name of the job. They reach
// deeper into the compiler than changes of bytes, which mostly end in the parser.
// Thread rule: pure function of job and seed.
#pragma once

#include <cstdint>

#include "proto/job.pb.h"

namespace weir {

// Makes one to four changes to `job`. The same seed makes the same changes.
void MutateJob(uint64_t seed, Job* job);

}  // namespace weir
