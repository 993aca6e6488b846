#include "runtime/device/walled_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/device/host_memory.h"

namespace weir::device {
namespace {

// The Wall holds the addresses of all walled blocks of a process. The first half is the device's;
// the second half lies inside the wall, at the same distance for every block. Addresses that no
// block holds have no memory.
class Wall {
 public:
  static constexpr int64_t kHalfBytes = int64_t{64} << 30;
  static constexpr int64_t kPage = 4096;

  // Reserves the addresses at the first call; they stay reserved.
  static Wall& Get() {
    static Wall wall;
    return wall;
  }

  char* base() const { return base_; }
  bool Has(const char* address) const {
    return base_ != nullptr && address >= base_ && address < base_ + kHalfBytes;
  }

  // Returns a block at a device address that no block had before; null, with errno, if there is
  // none.
  char* Map(int64_t mapped_bytes) {
    MutexLock lock(&mutex_);
    if (base_ == nullptr || mapped_bytes > kHalfBytes - used_) {
      errno = ENOMEM;
      return nullptr;
    }
    char* const device = base_ + used_;
    void* const inside = mmap(device + kHalfBytes, mapped_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (inside == MAP_FAILED) return nullptr;
    used_ += mapped_bytes;
    return device;
  }
  void Unmap(char* device, int64_t mapped_bytes) {
    // The addresses stay reserved, so that a use of an address after its block's end fails, too.
    mmap(device + kHalfBytes, mapped_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  }

 private:
  Wall() {
    void* const mapping = mmap(nullptr, 2 * kHalfBytes, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping != MAP_FAILED) base_ = static_cast<char*>(mapping);
  }

  char* base_ = nullptr;
  Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<DeviceBlock> WalledMemory::Allocate(int64_t bytes, Reach reach) {
  if (reach == Reach::kShared) return HostMemory().Allocate(bytes, reach);
  if (bytes < 0)
    return CodedError(absl::StatusCode::kInvalidArgument, "W0520",
                      "memory of a device: negative size");
  if (bytes == 0) return DeviceBlock();
  // One unused page separates each block from the next.
  const int64_t mapped = (bytes + Wall::kPage - 1) / Wall::kPage * Wall::kPage + Wall::kPage;
  char* const base = Wall::Get().Map(mapped);
  if (base == nullptr) {
    return ErrorOf(absl::StatusCode::kResourceExhausted,
                   {"W0520", "memory of a walled device", absl::StrCat(bytes, " bytes of memory"),
                    std::strerror(errno), "a smaller job: this device is for tests"});
  }
  return DeviceBlock(base, bytes, [base, mapped] { Wall::Get().Unmap(base, mapped); });
}

void* WalledMemory::Inside(const void* address) {
  char* const at = static_cast<char*>(const_cast<void*>(address));
  return Wall::Get().Has(at) ? at + Wall::kHalfBytes : at;
}

void WalledMemory::CopyIn(char* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(Inside(to), from, bytes);
}

void WalledMemory::CopyOut(void* to, const char* from, int64_t bytes) const {
  if (bytes > 0) std::memcpy(to, Inside(from), bytes);
}

void WalledMemory::Copy(char* to, const char* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(Inside(to), Inside(from), bytes);
}

void WalledMemory::Zero(char* at, int64_t bytes) {
  if (bytes > 0) std::memset(Inside(at), 0, bytes);
}

}  // namespace weir::device
