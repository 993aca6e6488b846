// A worker process of a job: holds some of its ranks and does what the starter asks over the
// control plane. `weir worker` is this and nothing else; `weir train --processes N` starts it.
// Thread rule: one call per process.
#pragma once

#include <istream>
#include <ostream>

#include "absl/status/status.h"

namespace weir {

// Reads a WorkerBundle from `bundle` to its end and serves until the job ends. OK if it ended in
// order; kAborted if it was ended from outside (then the exit code is kExitFollowing,
// tools/launch). What people should see goes to `log`.
absl::Status RunWorker(std::istream& bundle, std::ostream& log);

}  // namespace weir
