#include "runtime/limits/resident_memory.h"

#include <unistd.h>

#include <fstream>

namespace weir::limits {

int64_t OwnResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all_pages = 0, resident_pages = 0;
  file >> all_pages >> resident_pages;
  return file ? resident_pages * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace weir::limits
