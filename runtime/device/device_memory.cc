#include "runtime/device/device_memory.h"

#include "runtime/base/status.h"

namespace weir::device {

HostView DeviceMemory::View(const char* at, int64_t bytes) const {
  if (host_visible()) return HostView(at, bytes);
  auto copy = std::make_unique<char[]>(bytes);
  CopyOut(copy.get(), at, bytes);
  return HostView(std::move(copy), bytes);
}

absl::Status DeviceMemory::Fill(char* at, int64_t bytes,
                                absl::FunctionRef<absl::Status(char* host)> fill) {
  if (host_visible()) return fill(at);
  const auto host = std::make_unique<char[]>(bytes);
  WEIR_RETURN_IF_ERROR(fill(host.get()));
  CopyIn(at, host.get(), bytes);
  return absl::OkStatus();
}

}  // namespace weir::device
