// Limits the system calls that a thread may make, with seccomp.
// Thread rule: FilterSystemCalls confines the calling thread, ForbidProgramsByFilter all threads of
// the process.
#pragma once

#include <cstdint>
#include <string>

namespace weir::sandbox {

enum class FileWrites : uint8_t { kNone, kWhereFilesAreConfined };

// Leaves only the calls of a computation that reads and writes open files. Returns false if that is
// not possible, and *why gives the reason.
bool FilterSystemCalls(FileWrites writes, std::string* why);

// Returns true if this process can no longer start a program (sandbox.h, ForbidPrograms).
bool ForbidProgramsByFilter();

}  // namespace weir::sandbox
