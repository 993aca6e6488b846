#include "runtime/store/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/status.h"

namespace weir::store {
namespace {

// Names the kind of file that stands at a path in place of a regular file.
std::string KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something that is not a regular file";
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path, const Naming& naming) {
  const auto missing = [&](const std::string& found) {
    return Missing({naming.code, path, naming.expected, found, naming.hint});
  };
  // The check comes before the open, since opening some devices already has an effect. A second
  // check follows, because another file may have been put there since.
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return missing(::strerror(errno));
  if (!S_ISREG(info.st_mode)) return missing(KindOf(info.st_mode));
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return missing(::strerror(errno));
  InputFile file(descriptor, 0);
  if (::fstat(descriptor, &info) != 0) return missing(::strerror(errno));
  if (!S_ISREG(info.st_mode)) return missing(KindOf(info.st_mode));
  file.size_ = info.st_size;
  return file;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace weir::store
