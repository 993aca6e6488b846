#include "runtime/store/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/types.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace weir::store {

int OpenToLock(const std::string& file, int flags) {
  flags |= O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const int descriptor = ::open(file.c_str(), O_RDWR | flags, 0666);
  if (descriptor >= 0 || (errno != EACCES && errno != EROFS)) return descriptor;
  return ::open(file.c_str(), O_RDONLY | flags, 0666);
}

// NFS answers EBADF for a file that is open for reading only, and ENOLCK where its service of locks
// does not run.
bool HasNoLocks(int error) {
  return error == ENOSYS || error == EOPNOTSUPP || error == EBADF || error == ENOLCK;
}

std::string LockHolderText(const std::string& file) {
  struct stat info;
  if (::stat(file.c_str(), &info) != 0) return "";
  std::string likely;
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    // 1: FLOCK  ADVISORY  WRITE 123 08:02:9437 0 EOF
    std::istringstream words(line);
    std::string number, kind, mode, access, pid, place;
    words >> number >> kind >> mode >> access >> pid >> place;
    unsigned int device_major = 0, device_minor = 0;
    unsigned long inode = 0;
    if (kind != "FLOCK" ||
        ::sscanf(place.c_str(), "%x:%x:%lu", &device_major, &device_minor, &inode) != 3 ||
        inode != info.st_ino)
      continue;
    const std::string holder = absl::StrCat(" (pid ", pid, ")");
    if (device_major == major(info.st_dev) && device_minor == minor(info.st_dev)) return holder;
    // A file system without a device of its own, such as btrfs, may have one number here and
    // another for its files.
    if (device_major == 0 && major(info.st_dev) == 0 && likely.empty()) likely = holder;
  }
  return likely;
}

}  // namespace weir::store
