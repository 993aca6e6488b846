// Element types and their text names in graphs and plans. bf16 is the upper half of an f32, and f16
// is IEEE 754's binary16; conversions round to nearest even. A bool is one byte, 0 or 1.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

enum class DType : uint8_t { kF32, kBF16, kI32, kBool, kF16 };

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kBool: return 1;
  }
  return 4;
}
constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kI32: return "i32";
    case DType::kBool: return "bool";
  }
  return "?";
}
constexpr std::optional<DType> DTypeFromName(std::string_view name) {
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  if (name == "f16") return DType::kF16;
  if (name == "i32") return DType::kI32;
  if (name == "bool") return DType::kBool;
  return std::nullopt;
}
constexpr bool IsReal(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}
// Returns whether elements take two bytes and compute in f32: bf16 and f16.
constexpr bool IsHalf(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

struct BFloat16 {
  uint16_t bits = 0;
};
inline float ToFloat(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline BFloat16 ToBFloat16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return BFloat16{static_cast<uint16_t>((u >> 16) | 0x40u)};
  return BFloat16{static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

struct Float16 {
  uint16_t bits = 0;
};
inline float ToFloat(Float16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  // An exponent of 5 bits and 10 bits of fraction move to their places in an f32; 112 is the
  // difference of the biases.
  if (magnitude >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  // A subnormal number counts multiples of 2^-24, and zero is one of them.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return sign ? -value : value;
}
inline Float16 ToFloat16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return Float16{static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  // From 65520 on, half way between 65504, the largest f16, and 65536, numbers round to infinity.
  if (magnitude >= 0x477ff000u) return Float16{static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude >= 0x38800000u) {
    const uint32_t moved = magnitude - (112u << 23);
    return Float16{static_cast<uint16_t>(sign | ((moved + 0xfffu + ((moved >> 13) & 1u)) >> 13))};
  }
  // Below 2^-14: the sum with 0.5 has one unit in the last place of 2^-24, so the addition rounds
  // to nearest even.
  const uint32_t sum = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
  return Float16{static_cast<uint16_t>(sign | (sum - 0x3f000000u))};
}

}  // namespace weir
