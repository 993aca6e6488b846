// Devices by the name of their kind, as plans give it.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"

namespace weir::device {

// "cpu", and "walled": a CPU whose memory the host cannot touch, for tests.
std::vector<std::string> DeviceKinds();

// kInvalidArgument (W0529) if there is no such kind.
absl::Status CheckDeviceKind(const std::string& kind);

struct DeviceOptions {
  std::string kind = "cpu";
  int num_threads = 1;  // of the device's team
  // LimitsOf the kind bounds the next two.
  int num_queues = 1;
  int depth = 1;
  uint64_t seed = 1;  // of what a device for tests draws
};

// Errors are those of CheckDeviceKind.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options);

// The most that a job may ask for of a kind of device. An unknown kind has the least of all.
struct DeviceLimits {
  int num_queues = 1;
  int depth = 1;
};
DeviceLimits LimitsOf(const std::string& kind);

}  // namespace weir::device
