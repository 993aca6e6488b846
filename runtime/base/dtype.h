// Element types and their text names in graphs and plans. bf16 is the upper half of an f32;
// conversions round to nearest even. A bool is one byte, 0 or 1.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

enum class DType : uint8_t { kF32, kBF16, kI32, kBool };

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16: return 2;
    case DType::kBool: return 1;
  }
  return 4;
}
constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kI32: return "i32";
    case DType::kBool: return "bool";
  }
  return "?";
}
constexpr std::optional<DType> DTypeFromName(std::string_view name) {
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  if (name == "i32") return DType::kI32;
  if (name == "bool") return DType::kBool;
  return std::nullopt;
}
constexpr bool IsReal(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

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
