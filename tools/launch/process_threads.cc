#include "tools/launch/process_threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tools/launch/owned_descriptor.h"

namespace weir::launch {

bool ForEachThread(pid_t pid, absl::FunctionRef<void(const std::string& folder)> visit) {
  const std::string threads = absl::StrCat("/proc/", pid, "/task");
  DIR* directory = ::opendir(threads.c_str());
  if (directory == nullptr) return false;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') visit(absl::StrCat(threads, "/", entry->d_name));
  }
  ::closedir(directory);
  return true;
}

std::string ReadProcFile(const std::string& path) {
  // A file that opens may still fail to be read, and then an iterator over its stream would throw.
  const OwnedDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[4096];
  while (true) {
    const ssize_t count = ::read(file.get(), bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? "" : text;
    text.append(bytes, static_cast<size_t>(count));
  }
}

}  // namespace weir::launch
