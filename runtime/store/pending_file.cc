#include "runtime/store/pending_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/file_lock.h"
#include "runtime/store/names_beside.h"

namespace weir::store {
namespace {

constexpr mode_t kNewMode = 0666;  // less the umask
constexpr int kAttemptsMax = 16;   // at a name that nobody has
constexpr char kCannotWrite[] = "W0046";

std::string LinkOf(int descriptor) { return absl::StrCat("/proc/self/fd/", descriptor); }

int LinkTo(int descriptor, const std::string& path) {
  return ::linkat(AT_FDCWD, LinkOf(descriptor).c_str(), AT_FDCWD, path.c_str(),
                  AT_SYMLINK_FOLLOW) == 0
             ? 0
             : errno;
}

// Returns 0 if there is no file, or a regular file, whose mode it writes to `mode`.
int Look(const std::string& path, std::optional<mode_t>* mode) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return errno == ENOENT ? 0 : errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  if (!S_ISREG(info.st_mode)) return EINVAL;
  *mode = info.st_mode & 07777;
  return 0;
}

// Returns whether another user's file is in a folder with the sticky bit, such as /tmp. Then nobody
// else may replace that file, although anybody may make files beside it.
bool IsKeptByStickyFolder(const std::string& path) {
  struct stat folder, file;
  const uid_t user = ::geteuid();
  if (user == 0 || ::stat(FolderOf(path).c_str(), &folder) != 0) return false;
  return (folder.st_mode & S_ISVTX) != 0 && ::stat(path.c_str(), &file) == 0 &&
         user != file.st_uid && user != folder.st_uid;
}

std::string RemedyOf(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return "make room on that disk, or name a file on another";
    case EMFILE:
    case ENFILE: return "allow more open files (ulimit -n)";
    case EFBIG: return "allow larger files (ulimit -f), or name one on another file system";
    case EIO: return "look for errors of the disk (dmesg), or name a file on another";
    case EISDIR: return "name a file in that folder";
    case EINVAL: return "name a regular file, or one that is not there yet";
    default: return "check that the folder is there under this name, may be written, and has room";
  }
}

}  // namespace

absl::Status CannotWrite(const std::string& path, const std::string& what, int error) {
  return Missing({kCannotWrite, path, "to write the file",
                  absl::StrCat(what, ": ", strerror(error)), RemedyOf(error)});
}

bool IsCannotWrite(const absl::Status& status) {
  const std::optional<Problem> problem = ProblemOf(status);
  return absl::IsNotFound(status) && problem.has_value() && problem->code == kCannotWrite;
}

int RemovePublished(const std::string& path) {
  std::string target = path;
  if (const int error = FollowLinks(&target)) return error;
  if (::unlink(target.c_str()) != 0) return errno == ENOENT ? 0 : errno;
  return FlushFolderOf(target);
}

PendingFile::~PendingFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!name_.empty()) ::unlink(name_.c_str());
}

int PendingFile::Create(const std::string& path) {
  if (const int error = Settle(path)) return error;
  RemoveLeftovers({path_});
  return Make();
}

int PendingFile::Try(const std::string& path) {
  PendingFile tried;
  if (const int error = tried.Settle(path)) return error;
  if (IsKeptByStickyFolder(tried.path_)) return EPERM;
  const int error = tried.Make();
  return error == ENOSPC || error == EDQUOT ? 0 : error;
}

// Follows the path to its end, and looks at what is there.
int PendingFile::Settle(const std::string& path) {
  path_ = path;
  if (const int error = FollowLinks(&path_)) return error;
  return Look(path_, &replaced_mode_);
}

// Makes the file without a name, or under a temporary one. Precondition: Settle.
int PendingFile::Make() {
  descriptor_ = ::open(FolderOf(path_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kNewMode);
  if (descriptor_ < 0 || ::access(LinkOf(descriptor_).c_str(), F_OK) != 0) {
    if (const int error = CreateNamed()) return error;
  } else {
    open_path_ = absl::StrCat("/proc/", ::getpid(), "/fd/", descriptor_);
  }
  if (replaced_mode_.has_value() && ::fchmod(descriptor_, *replaced_mode_) != 0) return errno;
  // The lock is for RemoveLeftovers of other processes. A file system without locks has no
  // leftovers removed, either.
  ::flock(descriptor_, LOCK_EX | LOCK_NB);
  return 0;
}

// Creates the file under a name, if there is no O_TMPFILE or no /proc.
int PendingFile::CreateNamed() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  for (int attempt = 0; attempt < kAttemptsMax && descriptor_ < 0; ++attempt) {
    std::string name;
    if (const int error = NewNameBeside(path_, kPartialMark, &name)) return error;
    descriptor_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kNewMode);
    if (descriptor_ < 0 && errno != EEXIST) return errno;
    if (descriptor_ >= 0) name_ = open_path_ = std::move(name);
  }
  return descriptor_ < 0 ? EEXIST : 0;
}

int PendingFile::Publish() {
  if (name_.empty()) {
    const int error = LinkTo(descriptor_, path_);
    if (error == 0) return 0;
    if (error != EEXIST) return error;
    // Only a rename replaces a file, and only a file with a name can be renamed.
    if (const int failed = GiveName()) return failed;
  }
  if (::rename(name_.c_str(), path_.c_str()) != 0) return errno;
  name_.clear();
  return 0;
}

int PendingFile::GiveName() {
  int error = EEXIST;
  for (int attempt = 0; attempt < kAttemptsMax && error == EEXIST; ++attempt) {
    std::string name;
    if (const int failed = NewNameBeside(path_, kPartialMark, &name)) return failed;
    error = LinkTo(descriptor_, name);
    if (error == 0) name_ = std::move(name);
  }
  return error;
}

int PendingFile::FlushFolder() const { return FlushFolderOf(path_); }

// A process that is killed between GiveName and its rename leaves a file, but no lock.
void PendingFile::RemoveLeftovers(const std::vector<std::string>& paths) {
  for (const auto& [path, name] : NamesBeside(paths, kPartialMark)) {
    const int leftover = OpenToLock(name, 0);
    if (leftover < 0) continue;
    struct stat info;
    const bool regular = ::fstat(leftover, &info) == 0 && S_ISREG(info.st_mode);
    if (regular && ::flock(leftover, LOCK_EX | LOCK_NB) == 0) ::unlink(name.c_str());
    ::close(leftover);
  }
}

}  // namespace weir::store
