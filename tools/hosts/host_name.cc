#include "tools/hosts/host_name.h"

#include <unistd.h>

#include <fstream>

namespace weir::hosts {

std::string HostName() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string MachineId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

bool IsHere(const std::string& host) { return host == "localhost" || host == HostName(); }

}  // namespace weir::hosts
