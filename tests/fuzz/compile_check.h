// What must hold of any job whatever, sound or not: it compiles and lowers, or it is refused
// with the exit code of a refused job. A fault of ours (kInternal) is a failure.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace weir {

// Compiles `job` in every mode; lowers it for the ranks of small meshes and loads their plans. OK if the job is
// sound or rightly refused, else what went wrong.
absl::Status CheckCompile(const Job& job);

}  // namespace weir
