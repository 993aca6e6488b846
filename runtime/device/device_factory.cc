#include "runtime/device/device_factory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/device/cpu_device.h"

namespace weir {

std::vector<std::string> DeviceKinds() { return {"cpu", "walled"}; }

absl::Status CheckDeviceKind(const std::string& kind) {
  const std::vector<std::string> kinds = DeviceKinds();
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return absl::OkStatus();
  return Rejected({"W0529", "", absl::StrCat("a kind of device: ", absl::StrJoin(kinds, " or ")),
                   absl::StrCat("\"", kind, "\""), Nearest(kind, kinds)});
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const std::string& kind, int num_threads) {
  WEIR_RETURN_IF_ERROR(CheckDeviceKind(kind));
  const int threads = std::max(1, num_threads);
  if (kind == "walled") return std::make_unique<WalledDevice>(threads);
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace weir
