// Small jobs for tests that need a whole compilation. Thread rule: pure functions.
#pragma once

#include <string>

#include "proto/job.pb.h"

namespace weir::compiler {

// Returns a job of `layers` residual layers of two weights each, a classifier and 2 samples for
// each micro-batch and device, over the mesh "dp=2,pp=2". Rules split the batch over dp and the
// inner dimension of a layer over tp.
proto::Job SmallJob(const std::string& mesh, int layers, int micro_batches);

}  // namespace weir::compiler
