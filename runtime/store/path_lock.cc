#include "runtime/store/path_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/file_lock.h"
#include "runtime/store/names_beside.h"
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

bool IsOpenForWriting(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

// Returns the error of a lock that cannot be opened. A lock that another user has left may be one
// that this user may not open.
absl::Status CannotOpen(const std::string& path, const std::string& file, int error) {
  struct stat info;
  const std::string folder = FolderOf(path);
  if (error == ENOENT && ::stat(folder.c_str(), &info) != 0)
    return CannotWrite(path, absl::StrCat("the folder ", folder, " does not exist"), error);
  const absl::Status failure =
      CannotWrite(path, absl::StrCat("cannot make the lock ", file), error);
  std::optional<Problem> problem = ProblemOf(failure);
  if (error != EACCES || !problem.has_value() || ::lstat(file.c_str(), &info) != 0) return failure;
  problem->hint = absl::StrCat("remove ", file,
                               " if no export to that path runs, or name a file in another folder");
  return Missing(*problem);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PathLock>> PathLock::Take(const std::string& path) {
  const std::string file = path + kEnding;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const int descriptor = OpenToLock(file, O_CREAT);
    if (descriptor < 0) return CannotOpen(path, file, errno);
    const int error = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error == EWOULDBLOCK) {
      ::close(descriptor);
      return Missing({"W0961", path, "a path to which no other process writes",
                      absl::StrCat("one to which a running process writes", LockHolderText(file)),
                      "another name, or wait until that process has ended"});
    }
    // NFS locks what is open for writing, and this user may not write the lock of another.
    if (error == EBADF && !IsOpenForWriting(descriptor)) {
      ::close(descriptor);
      return CannotOpen(path, file, EACCES);
    }
    if (error != 0 && !HasNoLocks(error)) {
      ::close(descriptor);
      return CannotWrite(path, absl::StrCat("cannot lock ", file), error);
    }
    // The holder before may have removed the file after it was opened here.
    if (IsAt(descriptor, file))
      return std::unique_ptr<PathLock>(new PathLock(file, descriptor, error == 0));
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
