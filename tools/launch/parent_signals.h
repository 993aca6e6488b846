// Signals that a process takes from its parent alone. A scheduler sends a signal to every process
// of a job, but the starter decides how the job ends. Thread rule: one thread, at the start.
#pragma once

namespace weir::launch {

// From here on, this process ignores SIGINT, SIGTERM and SIGHUP from any process but its parent and
// the system. From these, a signal ends the process as before.
void TakeSignalsFromParentAlone();

}  // namespace weir::launch
