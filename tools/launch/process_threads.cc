#include "tools/launch/process_threads.h"

#include <dirent.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"

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
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace weir::launch
