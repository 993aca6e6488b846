// CRC32C (Castagnoli) of a payload. Thread rule: pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

uint32_t Crc32c(const void* bytes, size_t size);
// Returns the CRC32C of a payload whose beginning has the CRC32C `crc` and whose rest is given. The
// CRC32C of an empty beginning is 0.
uint32_t ExtendCrc32c(uint32_t crc, const void* bytes, size_t size);

}  // namespace weir
