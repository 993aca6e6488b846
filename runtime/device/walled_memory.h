// Memory that the host cannot touch, on a machine without an accelerator. Every block is mapped
// twice: at its device address, where all access is forbidden, and inside the wall, where kernels
// and the copies of this class reach the same bytes. Whoever uses a device address as if it were
// the host's dies of SIGSEGV at that line. Thread rule: as DeviceMemory.
#pragma once

#include "runtime/device/device_memory.h"

namespace weir {

class WalledMemory final : public DeviceMemory {
 public:
  absl::StatusOr<DeviceBlock> Allocate(int64_t bytes, Reach reach) override;
  bool host_visible() const override { return false; }
  void CopyIn(char* to, const void* from, int64_t bytes) override;
  void CopyOut(void* to, const char* from, int64_t bytes) const override;
  void Copy(char* to, const char* from, int64_t bytes) override;
  void Zero(char* at, int64_t bytes) override;

  // Where kernels reach what lies at a device address. Addresses of no walled block stay as they
  // are: shared blocks, and memory of the transport.
  static void* Inside(const void* address);
};

}  // namespace weir
