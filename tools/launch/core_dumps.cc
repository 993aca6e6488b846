#include "tools/launch/core_dumps.h"

#include <fcntl.h>
#include <unistd.h>

namespace weir::launch {

void KeepMemoryOutOfCoreDumps() {
  // PR_SET_DUMPABLE is not used, because it would also close /proc/PID to processes of the same
  // user, which share memory through /proc/PID.
  const int filter = ::open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
  if (filter < 0) return;
  (void)!::write(filter, "0", 1);
  ::close(filter);
}

}  // namespace weir::launch
