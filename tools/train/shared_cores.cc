#include "tools/train/shared_cores.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/base/unit_text.h"

namespace weir::train {

int64_t NumCores() { return std::max<int64_t>(1, std::thread::hardware_concurrency()); }

std::string SharedCoresText(int64_t devices, int64_t cores) {
  if (devices <= cores) return "";
  return absl::StrCat(devices, " devices share the ",
                      cores == 1 ? "one core" : Plural(cores, "core"),
                      " of this machine, so they are no faster than ",
                      cores == 1 ? "one device" : Plural(cores, "device"));
}

}  // namespace weir::train
