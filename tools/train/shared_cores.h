// Tells when the devices of a job outnumber the cores of this machine, as they may: a CPU device is
// threads, and several devices can share a core. Such a job is right, and no faster for its
// devices. Thread rule: pure functions, except for NumCores, which asks the system.
#pragma once

#include <cstdint>
#include <string>

namespace weir::train {

// Returns the number of cores that this process may use; 1 if the system does not tell.
int64_t NumCores();

// Returns "4 devices share the 2 cores of this machine, so they are no faster than 2 devices"; ""
// if each device has a core.
std::string SharedCoresText(int64_t devices, int64_t cores);

}  // namespace weir::train
