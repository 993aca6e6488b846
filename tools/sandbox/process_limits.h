// What a process that only reads and computes may use of the machine, so that no job, trace or
// cluster takes all of it. Thread rule: once, before other threads; the limits are the process's.
#pragma once

#include <cstdint>

namespace weir {

// The limit of CPU time, in seconds. A process that reaches the limit ends with W0816 and exit
// code 65.
inline constexpr int kCpuSecondsMax = 3600;

enum class CpuTime : uint8_t { kLimited, kUnlimited };

// Address space: as much as the machine has memory; then allocation fails. No core file, which
// would hold what was read. Limits that are lower already stay.
void LimitProcess(CpuTime time);

}  // namespace weir
