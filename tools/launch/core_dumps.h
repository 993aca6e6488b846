// Limits what the system may write to disk about a crashed process, because the processes of a job
// hold the keys of the job. Thread rule: any thread.
#pragma once

namespace weir::launch {

// From here on a core dump of this process, and of the processes that it starts, has registers and
// no memory. A developer with the right to debug the process can restore the memory: `echo 0x33 >
// /proc/PID/coredump_filter`.
void KeepMemoryOutOfCoreDumps();

}  // namespace weir::launch
