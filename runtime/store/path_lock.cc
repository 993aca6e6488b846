#include "runtime/store/path_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/pending_file.h"

namespace weir::store {
namespace {

constexpr char kEnding[] = ".lock";
constexpr int kAttemptsMax = 16;  // each time another holder has removed the file

// Returns whether the open file still has its name.
bool IsAt(int descriptor, const std::string& file) {
  struct stat here, there;
  return ::fstat(descriptor, &here) == 0 && ::lstat(file.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

bool IsEmptyFile(int descriptor) {
  struct stat info;
  return ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0;
}

}  // namespace

std::string LockHolderText(const std::string& file) {
  struct stat info;
  if (::stat(file.c_str(), &info) != 0) return "";
  const std::string inode = absl::StrCat(":", info.st_ino);
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    // 1: FLOCK  ADVISORY  WRITE 123 08:02:9437 0 EOF
    std::istringstream words(line);
    std::string number, kind, mode, access, pid, place;
    words >> number >> kind >> mode >> access >> pid >> place;
    if (kind == "FLOCK" && absl::EndsWith(place, inode)) return absl::StrCat(" (pid ", pid, ")");
  }
  return "";
}

absl::StatusOr<std::unique_ptr<PathLock>> PathLock::Take(const std::string& path) {
  const std::string file = path + kEnding;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const int descriptor = ::open(
        file.c_str(), O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (descriptor < 0)
      return CannotWrite(path, absl::StrCat("cannot make the lock ", file), errno);
    const bool is_locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    if (!is_locked && errno == EWOULDBLOCK) {
      ::close(descriptor);
      return Missing({"W0961", path, "a path to which no other process writes",
                      absl::StrCat("one to which a running process writes", LockHolderText(file)),
                      "another name, or wait until that process has ended"});
    }
    // The holder before may have removed the file after it was opened here.
    if (IsAt(descriptor, file))
      return std::unique_ptr<PathLock>(new PathLock(file, descriptor, is_locked));
    ::close(descriptor);
  }
  return CannotWrite(path, absl::StrCat("somebody removes the lock ", file), EAGAIN);
}

PathLock::~PathLock() {
  // A file with contents is not of this class.
  if (IsEmptyFile(descriptor_) && IsAt(descriptor_, file_)) ::unlink(file_.c_str());
  ::close(descriptor_);
}

}  // namespace weir::store
