// What the system may write to disk of a process that crashes. The processes of a job hold its
// keys. Thread rule: any thread.
#pragma once

namespace weir {

// From here on a core dump of this process, and of those that it starts, has registers and no
// memory. Whoever looks for a fault of the program, and may, gives it back: `echo 0x33 >
// /proc/PID/coredump_filter`.
void KeepMemoryOutOfCoreDumps();

}  // namespace weir
