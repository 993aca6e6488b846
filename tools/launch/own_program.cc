#include "tools/launch/own_program.h"

#include <limits.h>
#include <unistd.h>

namespace weir::launch {

std::string ResolvedProgram(const std::string& link) {
  char path[PATH_MAX];
  const ssize_t length = ::readlink(link.c_str(), path, sizeof(path));
  if (length <= 0 || length == static_cast<ssize_t>(sizeof(path))) return link;
  const std::string resolved(path, static_cast<size_t>(length));
  return ::access(resolved.c_str(), X_OK) == 0 ? resolved : link;
}

}  // namespace weir::launch
