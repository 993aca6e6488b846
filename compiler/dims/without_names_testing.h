// Takes the names of dimensions away from a job, as if an importer had written it. For tests.
// Thread rule: pure function.
#pragma once

#include "proto/job.pb.h"

namespace weir::compiler {

// Returns the job with a provisional name, a size and no unit for every dimension that does not
// stand in the type of an input of `main`. The table of dimensions stays. Precondition: the graph
// is sound.
proto::Job WithoutNames(proto::Job job);

}  // namespace weir::compiler
