#include "tools/launch/core_dumps.h"

#include <fcntl.h>
#include <unistd.h>

namespace weir {

void KeepMemoryOutOfCoreDumps() {
  // Not PR_SET_DUMPABLE: that would also close /proc/PID to processes of the same user, which share
  // memory through it.
  const int filter = ::open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
  if (filter < 0) return;
  (void)!::write(filter, "0", 1);
  ::close(filter);
}

}  // namespace weir
