// Element types and their text names in graphs and plans. bf16 is the upper half of an f32;
// conversions round to nearest even.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

enum class DType : uint8_t { kF32, kBF16, kI32 };

constexpr int64_t SizeOf(DType dtype) { return dtype == DType::kBF16 ? 2 : 4; }
constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kI32: return "i32";
  }
  return "?";
}
constexpr std::optional<DType> DTypeFromName(std::string_view name) {
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  if (name == "i32") return DType::kI32;
  return std::nullopt;
}
constexpr bool IsReal(DType dtype) { return dtype != DType::kI32; }

struct BFloat16 {
  uint16_t bits = 0;
};
inline float ToFloat(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline BFloat16 ToBFloat16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return BFloat16{static_cast<uint16_t>((u >> 16) | 0x40u)};
  return BFloat16{static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

}  // namespace weir
