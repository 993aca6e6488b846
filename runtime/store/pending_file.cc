#include "runtime/store/pending_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::store {
namespace {

constexpr mode_t kNewMode = 0666;  // less the umask
constexpr int kAttemptsMax = 16;   // at a name that nobody has
constexpr int kLinksMax = 40;      // as the kernel follows
constexpr char kMark[] = ".partial-";
constexpr size_t kDigits = 16;
constexpr char kCannotWrite[] = "W0046";

// The result has a slash at its end.
std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

std::string LinkOf(int descriptor) { return absl::StrCat("/proc/self/fd/", descriptor); }

int LinkTo(int descriptor, const std::string& path) {
  return ::linkat(AT_FDCWD, LinkOf(descriptor).c_str(), AT_FDCWD, path.c_str(),
                  AT_SYMLINK_FOLLOW) == 0
             ? 0
             : errno;
}

// Follows the links at `path` to their end, which need not exist.
int Follow(std::string* path) {
  for (int i = 0; i < kLinksMax; ++i) {
    char target[PATH_MAX];
    const ssize_t length = ::readlink(path->c_str(), target, sizeof(target));
    if (length < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno;
    const std::string to(target, static_cast<size_t>(length));
    *path = absl::StartsWith(to, "/") ? to : FolderOf(*path) + to;
  }
  return ELOOP;
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

int FlushFolderOf(const std::string& path) {
  const int folder = ::open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno;
  // Some file systems cannot flush a folder, and say so by EINVAL.
  const int error = ::fsync(folder) == 0 || errno == EINVAL ? 0 : errno;
  ::close(folder);
  return error;
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

int RandomName(const std::string& path, std::string* name) {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof(bits), 0) < 0) return errno;
  *name = absl::StrCat(path, kMark, absl::Hex(bits, absl::kZeroPad16));
  return 0;
}

bool IsTemporaryName(const std::string& entry, const std::string& base) {
  if (!absl::StartsWith(entry, base) || entry.size() != base.size() + sizeof(kMark) - 1 + kDigits)
    return false;
  if (entry.compare(base.size(), sizeof(kMark) - 1, kMark) != 0) return false;
  for (size_t i = entry.size() - kDigits; i < entry.size(); ++i) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(entry[i]))) return false;
  }
  return true;
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
  if (const int error = Follow(&target)) return error;
  if (::unlink(target.c_str()) != 0) return errno == ENOENT ? 0 : errno;
  return FlushFolderOf(target);
}

PendingFile::~PendingFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!name_.empty()) ::unlink(name_.c_str());
}

int PendingFile::Create(const std::string& path) {
  if (const int error = Settle(path)) return error;
  RemoveLeftovers();
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
  if (const int error = Follow(&path_)) return error;
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
    if (const int error = RandomName(path_, &name)) return error;
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
    if (const int failed = RandomName(path_, &name)) return failed;
    error = LinkTo(descriptor_, name);
    if (error == 0) name_ = std::move(name);
  }
  return error;
}

int PendingFile::FlushFolder() const { return FlushFolderOf(path_); }

// A process that is killed between GiveName and its rename leaves a file, but no lock.
void PendingFile::RemoveLeftovers() const {
  const std::string folder = FolderOf(path_),
                    base = path_.substr(folder == "./" && path_.rfind('/') == std::string::npos
                                            ? 0
                                            : folder.size());
  DIR* entries = ::opendir(folder.c_str());
  if (entries == nullptr) return;
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(entries)) {
    if (IsTemporaryName(entry->d_name, base)) names.push_back(folder + entry->d_name);
  }
  ::closedir(entries);
  for (const std::string& name : names) {
    const int leftover = ::open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (leftover < 0) continue;
    struct stat info;
    const bool regular = ::fstat(leftover, &info) == 0 && S_ISREG(info.st_mode);
    if (regular && ::flock(leftover, LOCK_EX | LOCK_NB) == 0) ::unlink(name.c_str());
    ::close(leftover);
  }
}

}  // namespace weir::store
