// WalledMemory is memory that the host cannot touch, on a machine without an accelerator. Every
// block is mapped twice: at its device address, where all access is forbidden, and inside the wall,
// where kernels and the copies of this class reach the same bytes. Host code that uses a device
// address as an address of the host dies of SIGSEGV at that line. Thread rule: as DeviceMemory.
#pragma once

#include "runtime/device/device_memory.h"

namespace weir::device {

class WalledMemory final : public DeviceMemory {
 public:
  absl::StatusOr<DeviceBlock> Allocate(int64_t bytes, Reach reach) override;
  bool host_visible() const override { return false; }
  void CopyIn(char* to, const void* from, int64_t bytes) override;
  void CopyOut(void* to, const char* from, int64_t bytes) const override;
  void Copy(char* to, const char* from, int64_t bytes) override;
  void Zero(char* at, int64_t bytes) override;

  // Returns the address at which kernels reach the bytes of a device address. An address outside
  // walled blocks (shared blocks, memory of the transport) is returned unchanged.
  static void* Inside(const void* address);
};

}  // namespace weir::device
