// HostMemory is the memory of devices whose kernels run on the host, which is the host's own
// memory. Pages come from the system zeroed and are backed when first touched. Thread rule: as
// DeviceMemory.
#pragma once

#include "runtime/device/device_memory.h"

namespace weir::device {

class HostMemory final : public DeviceMemory {
 public:
  absl::StatusOr<DeviceBlock> Allocate(int64_t bytes, Reach reach) override;
  bool host_visible() const override { return true; }
  void CopyIn(char* to, const void* from, int64_t bytes) override;
  void CopyOut(void* to, const char* from, int64_t bytes) const override;
  void Copy(char* to, const char* from, int64_t bytes) override;
  void Zero(char* at, int64_t bytes) override;
};

}  // namespace weir::device
