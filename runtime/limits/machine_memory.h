// The memory that processes of this machine may take together. Thread rule: any thread.
#pragma once

#include <cstdint>

namespace weir::limits {

struct MachineMemory {
  int64_t bytes = 0;
  // The control group of this process has less than the machine, and `bytes` are those of the
  // group.
  bool is_of_control_group = false;
};

MachineMemory OwnMachineMemory();

}  // namespace weir::limits
