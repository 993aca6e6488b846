#include "runtime/memory/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

absl::StatusOr<Arena> Arena::Create(int64_t bytes) {
  Arena arena;
  if (bytes < 0) return absl::InvalidArgumentError("W0520 arena: negative size");
  if (bytes == 0) return arena;
  // Large arenas start on a huge page, so that the system can back them with such.
  const bool large = bytes >= kHugePage;
  const int64_t mapping_bytes = bytes + (large ? kHugePage : 0);
  void* mapping =
      mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        Format({"W0520", "arena of a rank", absl::StrCat(bytes, " bytes of memory"),
                std::strerror(errno), "more devices, or fewer registers"}));
  }
  arena.mapping_ = mapping;
  arena.mapping_bytes_ = mapping_bytes;
  arena.base_ = static_cast<char*>(mapping);
  arena.bytes_ = bytes;
  if (large) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(mapping);
    arena.base_ += (kHugePage - address % kHugePage) % kHugePage;
    madvise(arena.base_, bytes, MADV_HUGEPAGE);
  }
  return arena;
}

Arena::~Arena() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  return *this;
}

}  // namespace weir
