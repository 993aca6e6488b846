#include "runtime/store/pending_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

constexpr mode_t kMode = 0644;
constexpr int kAttemptsMax = 16;  // at a name that nobody has

// With a slash at its end.
std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

std::string LinkOf(int descriptor) { return absl::StrCat("/proc/self/fd/", descriptor); }

int LinkTo(int descriptor, const std::string& path) {
  return ::linkat(AT_FDCWD, LinkOf(descriptor).c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

}  // namespace

PendingFile::~PendingFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!name_.empty()) ::unlink(name_.c_str());
}

int PendingFile::Create(const std::string& path) {
  path_ = path;
  descriptor_ = ::open(FolderOf(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
  if (descriptor_ < 0 || ::access(LinkOf(descriptor_).c_str(), F_OK) != 0) return CreateNamed();
  ::fchmod(descriptor_, kMode);
  open_path_ = absl::StrCat("/proc/", ::getpid(), "/fd/", descriptor_);
  return 0;
}

// Without O_TMPFILE, or without /proc.
int PendingFile::CreateNamed() {
  if (descriptor_ >= 0) ::close(descriptor_);
  std::string name = path_ + ".partial-XXXXXX";
  descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) return errno;
  name_ = open_path_ = name;
  ::fchmod(descriptor_, kMode);
  return 0;
}

int PendingFile::Publish() {
  if (name_.empty()) {
    const int error = LinkTo(descriptor_, path_);
    if (error == 0) return 0;
    if (error != EEXIST) return error;
    // Only a rename replaces a file, and only what has a name is renamed.
    if (const int failed = GiveName()) return failed;
  }
  if (::rename(name_.c_str(), path_.c_str()) != 0) return errno;
  name_.clear();
  return 0;
}

int PendingFile::GiveName() {
  int error = EEXIST;
  for (int attempt = 0; attempt < kAttemptsMax && error == EEXIST; ++attempt) {
    uint64_t bits = 0;
    if (::getrandom(&bits, sizeof(bits), 0) < 0) return errno;
    std::string name = absl::StrCat(path_, ".partial-", absl::Hex(bits, absl::kZeroPad16));
    error = LinkTo(descriptor_, name);
    if (error == 0) name_ = std::move(name);
  }
  return error;
}

}  // namespace weir
