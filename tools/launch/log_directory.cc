#include "tools/launch/log_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

absl::Status CannotLog(const std::string& path, const std::string& expected, int error) {
  return absl::UnavailableError(Format({"W0092", path.empty() ? "the empty path" : path, expected, ::strerror(error),
                                        error == EMFILE ? "a higher limit of open files (ulimit -n)" : "another folder for the logs"}));
}

bool IsDirectory(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

std::string LogDirectoryName(const std::string& base, const std::tm& local_time, int64_t pid) {
  return absl::StrFormat("%s/%04d%02d%02d-%02d%02d%02d-%d", base, local_time.tm_year + 1900, local_time.tm_mon + 1,
                         local_time.tm_mday, local_time.tm_hour, local_time.tm_min, local_time.tm_sec, pid);
}

absl::StatusOr<std::string> MakeLogDirectory(const std::string& base) {
  const std::time_t now = std::time(nullptr);
  std::tm local_time = {};
  ::localtime_r(&now, &local_time);
  const std::string path = LogDirectoryName(base.empty() ? "." : base, local_time, ::getpid());
  WEIR_RETURN_IF_ERROR(MakeDirectories(path));
  return path;
}

absl::Status MakeDirectories(const std::string& path) {
  size_t end = 0;
  do {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0755) != 0) {
      const int error = errno;
      if (!IsDirectory(part)) return CannotLog(part, "a folder that can be made", error == EEXIST ? ENOTDIR : error);
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
  OwnedDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.open()) return CannotLog(path, "a log file that can be written", errno);
  return file;
}

}  // namespace weir
