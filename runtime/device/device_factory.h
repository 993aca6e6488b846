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

// "cpu"; "cuda": a GPU of NVIDIA's; and for tests on any machine "walled", a CPU whose memory the
// host cannot touch, and "cuda-emulated", the kernels of a GPU on the host.
std::vector<std::string> DeviceKinds();

// kInvalidArgument (W0529) if there is no such kind. The machine need not have such a device.
absl::Status CheckDeviceKind(const std::string& kind);

// Returns "cuda" for "auto" if this machine has a GPU that this program can use, and else "cpu".
// Returns every other name as it is, and "cpu" for none.
std::string ResolveDeviceKind(const std::string& kind);

// kUnavailable (W0552) if this program was built without what such devices need.
absl::Status CheckDeviceIsBuilt(const std::string& kind);

// Returns an error if this program cannot use such devices on this machine: W0550 without a driver,
// W0551 without a GPU, W0552 if the program was built without the CUDA Toolkit.
absl::Status CheckDeviceIsHere(const std::string& kind);

struct DeviceOptions {
  std::string kind = "cpu";
  int num_threads = 1;  // of the device's team
  // LimitsOf the kind bounds the next two.
  int num_queues = 1;
  int depth = 1;
  uint64_t seed = 1;  // of what a device for tests draws
  // The number of the device among those of this host. A host with fewer GPUs than devices gives
  // several devices the same GPU, in turn.
  int number_on_host = 0;
  // The queue that has collectives alone, on a GPU; none: the device has no such queue.
  QueueId collective_queue;
};

// Errors are those of CheckDeviceKind and CheckDeviceIsHere, and of the first calls to a GPU
// (W0553).
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options);

// The most that a job may ask for of a kind of device, and what a device has if the job asks for
// nothing. An unknown kind has the least of all.
struct DeviceLimits {
  int num_queues = 1;
  int depth = 1;
  int default_num_queues = 1;
  int default_depth = 1;
  bool has_graphs = false;  // DeviceQueue::MakeChain makes chains
};
DeviceLimits LimitsOf(const std::string& kind);

}  // namespace weir::device
