// Reads the files that /proc keeps for each thread of a process. The process must be on this host.
// Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/functional/function_ref.h"

namespace weir::launch {

// Calls `visit` with the folder of each thread, such as "/proc/12/task/34". Returns false if there
// is no such process (any more). A thread may end while the visit lasts.
bool ForEachThread(pid_t pid, absl::FunctionRef<void(const std::string& folder)> visit);

// Returns the content of a file of /proc; empty if the file cannot be read, as after the end of the
// thread.
std::string ReadProcFile(const std::string& path);

}  // namespace weir::launch
