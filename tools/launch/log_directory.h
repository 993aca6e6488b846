// The log directories of jobs: <base>/<yyyymmdd-hhmmss>-<pid>/rank-2-3.log, and <base>/latest, a
// link to the directory of the job that began last. Makes directories and files, and writes nothing
// into the files. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/launch/owned_descriptor.h"

namespace weir::launch {

inline constexpr char kLogBaseDefault[] = "weir-logs";

// Returns the directory of the job that process `pid` started at `local_time`.
std::string LogDirectoryName(const std::string& base, const std::tm& local_time, int64_t pid);

// Makes the directory of a job that this process starts now, and the directories above it. Returns
// its name.
absl::StatusOr<std::string> MakeLogDirectory(const std::string& base = kLogBaseDefault);

// The same below a new folder for temporary files, which no other user can write to: for a job that
// starts again although somebody has made its own folder impossible. kUnavailable (W0092).
absl::StatusOr<std::string> MakeTemporaryLogDirectory();

// Makes `latest`, beside the directory of a job, a link to that directory. A failure is no error,
// because nothing depends on the link.
void PointLatestAt(const std::string& path);

// Cleans up at the good end of a job. Removes the job's log files if none has a byte, then the
// directory of the job, and the directory above if that is empty. `latest` then points to the last
// of the other jobs, or is removed. Entries that cannot be removed stay.
void RemoveEmptyLogs(const std::string& path);

// Makes a directory and the directories above it. An existing directory is no error. kUnavailable
// (W0092) otherwise.
absl::Status MakeDirectories(const std::string& path);

// Returns the file name of a label: "ranks 2-3" -> "ranks-2-3.log". Letters, digits, '.', '_' and
// '-' stay.
std::string LogFileName(const std::string& label);

// Opens a log for appending, and makes the file and the folders above it if they are absent:
// somebody may remove the folder while the job goes on. kUnavailable (W0092) if that fails.
absl::StatusOr<OwnedDescriptor> OpenLog(const std::string& path);

}  // namespace weir::launch
