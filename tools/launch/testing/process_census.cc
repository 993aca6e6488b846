#include "tools/launch/testing/process_census.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weir::launch {
namespace {

// Returns "5 -> pipe:[123]" for each descriptor.
std::set<std::string> Descriptors() {
  std::set<std::string> found;
  DIR* directory = ::opendir("/proc/self/fd");
  const int own = ::dirfd(directory);
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] == '.' || ::atoi(entry->d_name) == own) continue;
    char target[256] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(path.c_str(), target, sizeof(target) - 1) < 0) continue;
    found.insert(std::string(entry->d_name) + " -> " + target);
  }
  ::closedir(directory);
  return found;
}

}  // namespace

ProcessCensus::ProcessCensus() : descriptors_(Descriptors()) { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
ProcessCensus::~ProcessCensus() { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }

int ProcessCensus::CollectOrphans() {
  int count = 0;
  while (true) {
    if (::waitpid(-1, nullptr, 0) > 0) {
      ++count;
    } else if (errno != EINTR) {
      return count;
    }
  }
}

std::string ProcessCensus::Leftovers() {
  std::string text;
  siginfo_t info = {};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) text += "a child process\n";
  for (const std::string& descriptor : Descriptors()) {
    if (descriptors_.count(descriptor) == 0) text += "descriptor " + descriptor + "\n";
  }
  return text;
}

}  // namespace weir::launch
