#include "runtime/limits/machine_memory.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/numbers.h"

namespace weir::limits {
namespace {

// The limit of a control group: a number, or "max". 0: none.
int64_t ControlGroupBytes() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    std::string text;
    int64_t bytes = 0;
    if (file >> text && absl::SimpleAtoi(text, &bytes) && bytes > 0) return bytes;
  }
  return 0;
}

}  // namespace

MachineMemory OwnMachineMemory() {
  MachineMemory memory{static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<int64_t>(::sysconf(_SC_PAGESIZE)),
                       false};
  const int64_t group = ControlGroupBytes();
  if (group > 0 && group < memory.bytes) memory = {group, true};
  return memory;
}

}  // namespace weir::limits
