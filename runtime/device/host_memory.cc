#include "runtime/device/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::device {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

// The C library leaves a copy of nothing from or to null undefined.
void CopyBytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

absl::StatusOr<DeviceBlock> HostMemory::Allocate(int64_t bytes, Reach reach) {
  if (bytes < 0)
    return CodedError(absl::StatusCode::kInvalidArgument, "W0520",
                      "memory of a device: negative size");
  if (bytes == 0) return DeviceBlock();
  // Large blocks start on a huge page, so that the system can back them with huge pages.
  const bool large = bytes >= kHugePage;
  const int64_t mapping_bytes = bytes + (large ? kHugePage : 0);
  void* const mapping =
      mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return ErrorOf(absl::StatusCode::kResourceExhausted,
                   {"W0520", "arena of a rank", absl::StrCat(bytes, " bytes of memory"),
                    std::strerror(errno), "more devices, or fewer registers"});
  }
  char* base = static_cast<char*>(mapping);
  if (large) {
    base += (kHugePage - reinterpret_cast<uintptr_t>(mapping) % kHugePage) % kHugePage;
    madvise(base, bytes, MADV_HUGEPAGE);
  }
  return DeviceBlock(base, bytes, [mapping, mapping_bytes] { munmap(mapping, mapping_bytes); });
}

void HostMemory::CopyIn(char* to, const void* from, int64_t bytes) { CopyBytes(to, from, bytes); }

void HostMemory::CopyOut(void* to, const char* from, int64_t bytes) const {
  CopyBytes(to, from, bytes);
}

void HostMemory::Copy(char* to, const char* from, int64_t bytes) { CopyBytes(to, from, bytes); }

void HostMemory::Zero(char* at, int64_t bytes) {
  if (bytes > 0) std::memset(at, 0, bytes);
}

}  // namespace weir::device
