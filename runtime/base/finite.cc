#include "runtime/base/finite.h"

#include <algorithm>
#include <cstring>

namespace weir {
namespace {

// The number of values between two checks whether to go on: large enough that the inner loop runs
// on whole vectors.
constexpr int64_t kBlock = 1024;

// A value whose exponent has all bits set is NaN or infinite.
template <typename Bits, Bits kExponent>
bool AllFiniteBits(const unsigned char* data, int64_t count) {
  Bits block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    if (length < kBlock) std::fill(block + length, block + kBlock, Bits{0});
    std::memcpy(block, data + begin * static_cast<int64_t>(sizeof(Bits)),
                static_cast<size_t>(length) * sizeof(Bits));
    Bits largest = 0;
    for (int64_t i = 0; i < kBlock; ++i)
      largest = std::max(largest, static_cast<Bits>(block[i] & kExponent));
    if (largest == kExponent) return false;
  }
  return true;
}

template <typename Bits, Bits kExponent, Bits kMantissa>
NonfiniteCount CountBits(const unsigned char* data, int64_t count) {
  NonfiniteCount found;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    if ((bits & kExponent) != kExponent) continue;
    ++((bits & kMantissa) != 0 ? found.nans : found.infinities);
    if (found.first < 0) found.first = i;
  }
  return found;
}

}  // namespace

bool AllFinite(DType dtype, const void* data, int64_t count) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  switch (dtype) {
    case DType::kF32: return AllFiniteBits<uint32_t, 0x7f800000u>(bytes, count);
    case DType::kBF16: return AllFiniteBits<uint16_t, 0x7f80u>(bytes, count);
    case DType::kF16: return AllFiniteBits<uint16_t, 0x7c00u>(bytes, count);
    case DType::kI32:
    case DType::kBool: return true;
  }
  return true;
}

NonfiniteCount CountNonfinite(DType dtype, const void* data, int64_t count) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  switch (dtype) {
    case DType::kF32: return CountBits<uint32_t, 0x7f800000u, 0x007fffffu>(bytes, count);
    case DType::kBF16: return CountBits<uint16_t, 0x7f80u, 0x007fu>(bytes, count);
    case DType::kF16: return CountBits<uint16_t, 0x7c00u, 0x03ffu>(bytes, count);
    case DType::kI32:
    case DType::kBool: return {};
  }
  return {};
}

}  // namespace weir
