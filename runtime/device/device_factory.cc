#include "runtime/device/device_factory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/walled_device.h"

namespace weir {

std::vector<std::string> DeviceKinds() { return {"cpu", "walled"}; }

absl::Status CheckDeviceKind(const std::string& kind) {
  const std::vector<std::string> kinds = DeviceKinds();
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return absl::OkStatus();
  return Rejected({"W0529", "", absl::StrCat("a kind of device: ", absl::StrJoin(kinds, " or ")),
                   absl::StrCat("\"", kind, "\""), Nearest(kind, kinds)});
}

DeviceLimits LimitsOf(const std::string& kind) {
  if (kind == "walled") return {4, 1024};
  return {1, 1};
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckDeviceKind(options.kind));
  const int threads = std::max(1, options.num_threads);
  if (options.kind == "cpu") return std::make_unique<CpuDevice>(threads);
  WalledDeviceOptions walled;
  walled.num_threads = threads;
  walled.num_queues = options.num_queues;
  walled.depth = options.depth;
  walled.seed = options.seed;
  return std::make_unique<WalledDevice>(walled);
}

}  // namespace weir
