#include "runtime/device/device_factory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/walled_device.h"

namespace weir::device {

namespace {

struct DeviceKind {
  const char* name;
  DeviceLimits limits;
  std::unique_ptr<Device> (*make)(const DeviceOptions& options);
};

std::unique_ptr<Device> MakeCpu(const DeviceOptions& options) {
  return std::make_unique<CpuDevice>(std::max(1, options.num_threads));
}

std::unique_ptr<Device> MakeWalled(const DeviceOptions& options) {
  WalledDeviceOptions walled;
  walled.num_threads = std::max(1, options.num_threads);
  walled.num_queues = options.num_queues;
  walled.depth = options.depth;
  walled.seed = options.seed;
  return std::make_unique<WalledDevice>(walled);
}

constexpr DeviceKind kKinds[] = {{"cpu", {1, 1}, &MakeCpu}, {"walled", {4, 1024}, &MakeWalled}};

const DeviceKind* FindKind(const std::string& name) {
  for (const DeviceKind& kind : kKinds) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> DeviceKinds() {
  std::vector<std::string> names;
  for (const DeviceKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

absl::Status CheckDeviceKind(const std::string& kind) {
  if (FindKind(kind) != nullptr) return absl::OkStatus();
  const std::vector<std::string> kinds = DeviceKinds();
  return Rejected({"W0529", "", absl::StrCat("a kind of device: ", absl::StrJoin(kinds, " or ")),
                   absl::StrCat("\"", kind, "\""), Nearest(kind, kinds)});
}

DeviceLimits LimitsOf(const std::string& kind) {
  const DeviceKind* const known = FindKind(kind);
  return known == nullptr ? DeviceLimits() : known->limits;
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckDeviceKind(options.kind));
  return FindKind(options.kind)->make(options);
}

}  // namespace weir::device
