// Where the logs of a job lie: <base>/<yyyymmdd-hhmmss>-<pid>/rank-2-3.log, and <base>/latest, a
// link to the directory of the job that began last. Makes directories and files; writes nothing
// into them. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/launch/owned_descriptor.h"

namespace weir {

inline constexpr char kLogBaseDefault[] = "weir-logs";

// The directory of the job that process `pid` started at `local_time`.
std::string LogDirectoryName(const std::string& base, const std::tm& local_time, int64_t pid);

// Makes the directory of a job that this process starts now, and those above it. Returns its name.
absl::StatusOr<std::string> MakeLogDirectory(const std::string& base = kLogBaseDefault);

// Makes `latest`, beside the directory of a job, a link to it. Nothing depends on it: no error if
// that fails.
void PointLatestAt(const std::string& path);

// At the good end of a job: removes its log files if none has a byte, then its directory, and the
// one above if that is empty. `latest` then leads to the last of the other jobs, or goes. What
// cannot be removed stays.
void RemoveEmptyLogs(const std::string& path);

// Makes a directory and those above it; one that is there is well. kUnavailable (W0092) otherwise.
absl::Status MakeDirectories(const std::string& path);

// "rank 2-3" -> "rank-2-3.log": letters, digits, '.', '_' and '-' stay.
std::string LogFileName(const std::string& label);

// Opens a log to append to; made if absent. kUnavailable (W0092) if that fails.
absl::StatusOr<OwnedDescriptor> OpenLog(const std::string& path);

}  // namespace weir
