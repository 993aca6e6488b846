// CRC32C (Castagnoli) of a payload. Thread rule: pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

uint32_t Crc32c(const void* bytes, size_t size);

}  // namespace weir
