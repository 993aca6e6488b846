#include "tools/launch/program_path.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weir::launch {

std::string ResolvedProgram(const std::string& link) {
  char path[PATH_MAX];
  const ssize_t length = ::readlink(link.c_str(), path, sizeof(path));
  if (length <= 0 || length == static_cast<ssize_t>(sizeof(path))) return link;
  const std::string resolved(path, static_cast<size_t>(length));
  return ::access(resolved.c_str(), X_OK) == 0 ? resolved : link;
}

std::string FindInPath(const std::string& program, const std::string& path) {
  const auto runs = [](const std::string& file) {
    struct stat facts = {};
    return ::stat(file.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
           ::access(file.c_str(), X_OK) == 0;
  };
  if (program.find('/') != std::string::npos) return runs(program) ? program : "";
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    const std::string file = absl::StrCat(folder.empty() ? "." : folder, "/", program);
    if (runs(file)) return file;
  }
  return "";
}

std::string FindInOwnPath(const std::string& program) {
  const char* const path = std::getenv("PATH");
  return FindInPath(program, path == nullptr || *path == '\0' ? "/usr/bin:/bin" : path);
}

}  // namespace weir::launch
