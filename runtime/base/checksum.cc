#include "runtime/base/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace weir {

uint32_t Crc32c(const void* bytes, size_t size) { return ExtendCrc32c(0, bytes, size); }

uint32_t ExtendCrc32c(uint32_t crc, const void* bytes, size_t size) {
  constexpr size_t kChunkMax = size_t{1} << 30;  // the library counts in int
  // The library function only reads, though its signature does not say so.
  unsigned char* next = static_cast<unsigned char*>(const_cast<void*>(bytes));
  crc = ~crc;
  while (size > 0) {
    const size_t chunk = std::min(size, kChunkMax);
    crc = ::crc32_iscsi(next, static_cast<int>(chunk), crc);
    next += chunk;
    size -= chunk;
  }
  return ~crc;
}

}  // namespace weir
