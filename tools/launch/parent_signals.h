// A process takes signals from its parent alone, and ends with its parent. A scheduler sends a
// signal to every process of a job, but the starter decides how the job ends. Thread rule: one
// thread, at the start.
#pragma once

namespace weir::launch {

// From here on, this process ignores SIGINT, SIGTERM, SIGHUP and SIGUSR1 from any process but its
// parent and the system. From these, a signal ends the process as before.
void TakeSignalsFromParentAlone();

// From here on, this process gets one SIGTERM when its parent has ended. The system's own request
// (PR_SET_PDEATHSIG) comes at the end of the thread that has made this process, and again for other
// threads when such a parent is killed; a second request ends a starter at once.
void EndWithParent();

}  // namespace weir::launch
