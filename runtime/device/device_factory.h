// Devices by the name of their kind, as plans give it.
// Thread rule: any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"

namespace weir {

// "cpu", and "walled": a CPU whose memory the host cannot touch, for tests.
std::vector<std::string> DeviceKinds();

// kInvalidArgument (W0529) if there is no such kind.
absl::Status CheckDeviceKind(const std::string& kind);

// As CheckDeviceKind. `num_threads`: of the device's team, at
// least 1.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const std::string& kind, int num_threads);

}  // namespace weir
