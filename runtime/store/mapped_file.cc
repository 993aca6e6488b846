#include "runtime/store/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/status.h"

namespace weir {
namespace {

absl::Status CannotOpen(const std::string& path, const std::string& purpose, const std::string& found) {
  return Missing({"W0040", path, "a readable file (" + purpose + ")", found,
                  "check the path; relative paths count from the current directory"});
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path, const std::string& purpose) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CannotOpen(path, purpose, strerror(errno));
  struct stat info;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return CannotOpen(path, purpose, "something that is not a regular file");
  }
  void* data = nullptr;
  if (info.st_size > 0) {
    data = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      std::string reason = strerror(errno);
      ::close(fd);
      return CannotOpen(path, purpose, "a file that cannot be mapped: " + reason);
    }
  }
  ::close(fd);
  return std::unique_ptr<MappedFile>(new MappedFile(path, static_cast<const uint8_t*>(data), info.st_size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

}  // namespace weir
