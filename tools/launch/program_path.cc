#include "tools/launch/program_path.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
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

namespace {

enum class Permission : uint8_t { kToExecute, kNone };

bool IsFile(const std::string& path, Permission permission) {
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  return (::access(path.c_str(), X_OK) == 0) == (permission == Permission::kToExecute);
}

// Returns the first file for the word with this permission; empty if there is none.
std::string FindFile(const std::string& program, const std::string& path, Permission permission) {
  if (program.find('/') != std::string::npos) return IsFile(program, permission) ? program : "";
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    const std::string file = absl::StrCat(folder.empty() ? "." : folder, "/", program);
    if (IsFile(file, permission)) return file;
  }
  return "";
}

std::string OwnPath() {
  const char* const path = std::getenv("PATH");
  return path == nullptr || *path == '\0' ? "/usr/bin:/bin" : path;
}

}  // namespace

std::string FindInPath(const std::string& program, const std::string& path) {
  return FindFile(program, path, Permission::kToExecute);
}

std::string FindInOwnPath(const std::string& program) { return FindInPath(program, OwnPath()); }

std::string FindNotExecutable(const std::string& program) {
  return FindFile(program, OwnPath(), Permission::kNone);
}

}  // namespace weir::launch
