// A worker process of a job. A worker holds some ranks of the job and executes commands that the
// starter sends over the control plane. `weir worker` is only this process, and `weir train
// --processes N` starts it.
// Thread rule: one call per process.
#pragma once

#include <istream>
#include <ostream>

#include "absl/status/status.h"

namespace weir::fleet {

// Reads a WorkerBundle from `bundle` to its end and serves until the job ends. OK: the worker ended
// in order. kAborted: the worker was ended from outside (its exit code is then kExitFollowing,
// tools/launch). Text for people goes to `log`.
absl::Status RunWorker(std::istream& bundle, std::ostream& log);

}  // namespace weir::fleet
