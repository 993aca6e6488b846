#include "tools/launch/log_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/limits/process_limits.h"

namespace weir::launch {
namespace {

namespace fs = std::filesystem;

constexpr char kLatest[] = "latest";
constexpr char kMadePrefix[] = ".latest-";  // of a link that is not renamed yet
constexpr int64_t kMadeSecondsMax = 60;     // an older one has no process that renames it
constexpr int kAgainMax = 3;

absl::Status CannotLog(const std::string& path, const std::string& expected, int error) {
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {"W0092", path.empty() ? "the empty path" : path, expected, ::strerror(error),
                  error == EMFILE ? limits::ShortageAdvice(error) : "another folder for the logs"});
}

bool IsDirectory(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Holds the lock of the folder of all logs, so that jobs that end at the same moment see each
// other's folders and links whole. A file system without locks gives none, and then nothing waits.
OwnedDescriptor LockBase(const fs::path& base) {
  OwnedDescriptor folder(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (folder.open() && ::flock(folder.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return folder;
}

// Removes the new links of processes that were killed before they could rename them.
void SweepMadeLinks(const fs::path& base) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, error)) {
    struct stat link = {};
    if (!absl::StartsWith(entry.path().filename().string(), kMadePrefix)) continue;
    if (::lstat(entry.path().c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) continue;
    if (std::time(nullptr) - link.st_mtime > kMadeSecondsMax) fs::remove(entry.path(), error);
  }
}

// Replaces the link by a new one: the new link is made under its own name and then renamed.
void Point(const fs::path& base, const fs::path& name) {
  SweepMadeLinks(base);
  const fs::path link = base / kLatest, made = base / absl::StrCat(kMadePrefix, ::getpid());
  std::error_code error;
  fs::create_symlink(name, made, error);
  if (error) return;
  fs::rename(made, link, error);
  if (error) fs::remove(made, error);
}

}  // namespace

std::string LogDirectoryName(const std::string& base, const std::tm& local_time, int64_t pid) {
  return absl::StrFormat("%s/%04d%02d%02d-%02d%02d%02d-%d", base, local_time.tm_year + 1900,
                         local_time.tm_mon + 1, local_time.tm_mday, local_time.tm_hour,
                         local_time.tm_min, local_time.tm_sec, pid);
}

absl::StatusOr<std::string> MakeLogDirectory(const std::string& base) {
  const std::time_t now = std::time(nullptr);
  std::tm local_time = {};
  ::localtime_r(&now, &local_time);
  const std::string path = LogDirectoryName(base.empty() ? "." : base, local_time, ::getpid());
  // A job that ends removes the folder of all logs if it is empty, perhaps just now.
  absl::Status made = MakeDirectories(path);
  for (int again = 0; !made.ok() && again < kAgainMax; ++again) made = MakeDirectories(path);
  WEIR_RETURN_IF_ERROR(made);
  return path;
}

absl::StatusOr<std::string> MakeTemporaryLogDirectory() {
  std::error_code error;
  std::string base = (fs::temp_directory_path(error) / "weir-logs.XXXXXX").string();
  if (::mkdtemp(base.data()) == nullptr) return CannotLog(base, "a folder that can be made", errno);
  return MakeLogDirectory(base);
}

void PointLatestAt(const std::string& path) {
  const fs::path directory(path);
  const OwnedDescriptor lock = LockBase(directory.parent_path());
  Point(directory.parent_path(), directory.filename());
}

void RemoveEmptyLogs(const std::string& path) {
  const fs::path directory(path), base = directory.parent_path(), link = base / kLatest;
  const OwnedDescriptor lock = LockBase(base);
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (!entry.is_regular_file(error) || entry.file_size(error) > 0 || error) return;
  }
  if (error) return;
  fs::remove_all(directory, error);
  if (error || fs::read_symlink(link, error) != directory.filename()) return;
  std::string last;  // names begin with the date, so they stand in the order of time
  for (const fs::directory_entry& entry : fs::directory_iterator(base, error)) {
    if (entry.is_directory(error) && !entry.is_symlink(error))
      last = std::max(last, entry.path().filename().string());
  }
  if (!last.empty()) return Point(base, last);
  fs::remove(link, error);
  fs::remove(base, error);  // only if the directory is empty
}

absl::Status MakeDirectories(const std::string& path) {
  size_t end = 0;
  do {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0755) != 0) {
      const int error = errno;
      if (!IsDirectory(part))
        return CannotLog(part, "a folder that can be made", error == EEXIST ? ENOTDIR : error);
    }
  } while (end != std::string::npos);
  return absl::OkStatus();
}

std::string LogFileName(const std::string& label) {
  std::string name = label;
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  return name + ".log";
}

absl::StatusOr<OwnedDescriptor> OpenLog(const std::string& path) {
  const auto open = [&path] {
    return OwnedDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  };
  OwnedDescriptor file = open();
  const std::string folder = fs::path(path).parent_path().string();
  if (!file.open() && errno == ENOENT && !folder.empty()) {
    WEIR_RETURN_IF_ERROR(MakeDirectories(folder));
    file = open();
  }
  if (!file.open()) return CannotLog(path, "a log file that can be written", errno);
  return file;
}

}  // namespace weir::launch
