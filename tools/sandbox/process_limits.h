// Limits the use of the machine by a process that only reads and computes, so that no job, trace or
// cluster takes the whole machine. Thread rule: once, before other threads start; the limits are
// the process's.
#pragma once

#include <cstdint>

namespace weir::sandbox {

// The limit of CPU time, in seconds. A process that reaches the limit ends with W0816 and exit
// code 65.
inline constexpr int kCpuSecondsMax = 3600;

enum class CpuTime : uint8_t { kLimited, kUnlimited };

// Limits the address space to the size of the machine's memory; allocation beyond that fails.
// Forbids a core file, because it would hold the data that was read. Lower limits that are already
// set stay.
void LimitProcess(CpuTime time);

}  // namespace weir::sandbox
