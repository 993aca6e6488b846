#include "runtime/device/device_factory.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/cuda_facts.h"
#include "runtime/device/cuda/emulated_cuda_api.h"
#include "runtime/device/walled_device.h"

namespace weir::device {

namespace {

constexpr const char* kCuda = "cuda";
constexpr const char* kCudaEmulated = "cuda-emulated";

struct DeviceKind {
  const char* name;
  DeviceLimits limits;
  absl::StatusOr<std::unique_ptr<Device>> (*make)(const DeviceOptions& options);
};

absl::StatusOr<std::unique_ptr<Device>> MakeCpu(const DeviceOptions& options) {
  return std::make_unique<CpuDevice>(std::max(1, options.num_threads));
}

absl::StatusOr<std::unique_ptr<Device>> MakeWalled(const DeviceOptions& options) {
  WalledDeviceOptions walled;
  walled.num_threads = std::max(1, options.num_threads);
  walled.num_queues = options.num_queues;
  walled.depth = options.depth;
  walled.seed = options.seed;
  return std::make_unique<WalledDevice>(walled);
}

absl::StatusOr<std::unique_ptr<Device>> MakeCuda(const DeviceOptions& options) {
  const CudaFacts facts = FindGpus();
  WEIR_RETURN_IF_ERROR(CheckGpus(facts));
  CudaDeviceOptions cuda;
  cuda.gpu = options.number_on_host % static_cast<int>(facts.gpus.size());
  cuda.num_queues = options.num_queues;
  cuda.depth = options.depth;
  cuda.collective_queue = options.collective_queue;
  return CudaDevice::Create(MakeCudaRuntimeApi(), cuda);
}

absl::StatusOr<std::unique_ptr<Device>> MakeEmulatedCuda(const DeviceOptions& options) {
  CudaDeviceOptions cuda;
  cuda.kind = kCudaEmulated;
  cuda.num_queues = options.num_queues;
  cuda.depth = options.depth;
  cuda.collective_queue = options.collective_queue;
  return CudaDevice::Create(std::make_unique<EmulatedCudaApi>(options.seed), cuda);
}

// A stream of CUDA takes about 1000 launches before a launch waits, and an act is several.
constexpr DeviceLimits kCudaLimits{4, 256, 4, 64, true};

constexpr DeviceKind kKinds[] = {{"cpu", {}, &MakeCpu},
                                 {kCuda, kCudaLimits, &MakeCuda},
                                 {"walled", {4, 1024, 1, 1}, &MakeWalled},
                                 {kCudaEmulated, kCudaLimits, &MakeEmulatedCuda}};

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
  const bool means_cuda =
      absl::EqualsIgnoreCase(kind, "gpu") || absl::EqualsIgnoreCase(kind, kCuda);
  return Rejected({"W0529", "",
                   absl::StrCat("a kind of device: auto, ", absl::StrJoin(kinds, ", ")),
                   absl::StrCat("\"", kind, "\""), means_cuda ? kCuda : Nearest(kind, kinds)});
}

std::string ResolveDeviceKind(const std::string& kind) {
  if (kind == "auto") return CheckGpus(FindGpus()).ok() ? kCuda : "cpu";
  return kind.empty() ? "cpu" : kind;
}

absl::Status CheckDeviceIsBuilt(const std::string& kind) {
  return kind == kCuda ? CheckProgram(FindGpus()) : absl::OkStatus();
}

absl::Status CheckDeviceIsHere(const std::string& kind) {
  return kind == kCuda ? CheckGpus(FindGpus()) : absl::OkStatus();
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
