#include "tools/train/job_device.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/collective/nccl_placement.h"
#include "runtime/device/device_factory.h"

namespace weir::train {

namespace {

// The local library reads and writes the memory of all ranks as the host does, and NCCL that of
// GPUs.
absl::Status CheckCollectives(const proto::Runtime& runtime) {
  if (runtime.collectives() == proto::Runtime::NCCL)
    return collective::CheckNcclPlacement({.device_kind = runtime.device()});
  if (runtime.collectives() != proto::Runtime::LOCAL || runtime.device() != "cuda")
    return absl::OkStatus();
  return Rejected({"W0956", "runtime.collectives",
                   "EXCHANGES on a device \"cuda\", whose memory the host does not reach", "LOCAL",
                   "runtime.collectives=EXCHANGES"});
}

}  // namespace

absl::Status SettleDevice(proto::Job* job) {
  proto::Runtime& runtime = *job->mutable_runtime();
  if (runtime.device().empty()) return CheckCollectives(runtime);
  const std::string kind = device::ResolveDeviceKind(runtime.device());
  WEIR_RETURN_IF_ERROR(At("runtime.device", device::CheckDeviceKind(kind)));
  WEIR_RETURN_IF_ERROR(At("runtime.device", device::CheckDeviceIsBuilt(kind)));
  runtime.set_device(kind);
  const device::DeviceLimits limits = device::LimitsOf(kind);
  if (runtime.device_queues() == 0 && limits.default_num_queues > 1)
    runtime.set_device_queues(limits.default_num_queues);
  if (runtime.device_depth() == 0 && limits.default_depth > 1)
    runtime.set_device_depth(limits.default_depth);
  return CheckCollectives(runtime);
}

absl::Status CheckDevice(const proto::Runtime& runtime) {
  const std::string kind = runtime.device().empty() ? "cpu" : runtime.device();
  WEIR_RETURN_IF_ERROR(At("runtime.device", device::CheckDeviceKind(kind)));
  const device::DeviceLimits limits = device::LimitsOf(kind);
  const auto check = [&](const char* where, int value, int most) {
    if (value <= most) return absl::OkStatus();
    return Rejected({"W0529", where, absl::StrCat("at most ", most, " on a device \"", kind, "\""),
                     absl::StrCat(value), ""});
  };
  if (runtime.graphs() == proto::Runtime::Graphs::ON && !limits.has_graphs) {
    return Rejected({"W0966", "runtime.graphs", "AUTO or OFF on a device without graphs",
                     absl::StrCat("ON on a device \"", kind, "\""),
                     "runtime.graphs=AUTO, which takes graphs where the device has them"});
  }
  WEIR_RETURN_IF_ERROR(check("runtime.device_queues", runtime.device_queues(), limits.num_queues));
  return check("runtime.device_depth", runtime.device_depth(), limits.depth);
}

}  // namespace weir::train
