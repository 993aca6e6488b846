#include "tools/hosts/host_name.h"

#include <unistd.h>

namespace weir::hosts {

std::string HostName() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

bool IsHere(const std::string& host) { return host == "localhost" || host == HostName(); }

}  // namespace weir::hosts
