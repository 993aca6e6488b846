// Which system calls a thread may make, by seccomp.
// Thread rule: FilterSystemCalls confines the calling thread, ForbidProgramsByFilter all threads of
// the process.
#pragma once

#include <cstdint>
#include <string>

namespace weir {

enum class FileWrites : uint8_t { kNone, kWhereFilesAreConfined };

// True if only the calls of a computation that reads and writes open files are left; else *why says
// why not.
bool FilterSystemCalls(FileWrites writes, std::string* why);

// True if nothing here can start a program any more (sandbox.h, ForbidPrograms).
bool ForbidProgramsByFilter();

}  // namespace weir
