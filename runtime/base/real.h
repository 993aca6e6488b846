// Elements of the real types (f32, bf16 and f16) in memory, as f32.
// A further real type needs its lines in dtype.h and here on the host.
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/base/dtype.h"

namespace weir {

inline float ToFloat(float x) { return x; }

// Returns whether T stores elements of a real type.
template <class T>
inline constexpr bool kStoresReals =
    std::is_same_v<T, float> || std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// Returns x as an element of T, rounded to nearest even.
template <class T>
inline T RoundTo(float x) {
  static_assert(kStoresReals<T>);
  if constexpr (std::is_same_v<T, BFloat16>) {
    return ToBFloat16(x);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return ToFloat16(x);
  } else {
    return x;
  }
}

// Calls f with a null pointer to the type that stores elements of `dtype`, which is real, so that
// one template serves all real types.
template <class F>
inline decltype(auto) WithRealType(DType dtype, F&& f) {
  if (dtype == DType::kBF16) return f(static_cast<BFloat16*>(nullptr));
  if (dtype == DType::kF16) return f(static_cast<Float16*>(nullptr));
  return f(static_cast<float*>(nullptr));
}

// Returns element i of `data`, whose type is real. `data` need not be aligned.
inline float RealAt(DType dtype, const void* data, int64_t i) {
  return WithRealType(dtype, [&](auto* type) {
    std::remove_pointer_t<decltype(type)> x;
    std::memcpy(&x, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(x)),
                sizeof(x));
    return ToFloat(x);
  });
}

// Sets element i of `data`, whose type is real, to `value`, rounded. `data` need not be aligned.
inline void SetRealAt(DType dtype, void* data, int64_t i, float value) {
  WithRealType(dtype, [&](auto* type) {
    const auto x = RoundTo<std::remove_pointer_t<decltype(type)>>(value);
    std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(sizeof(x)), &x, sizeof(x));
  });
}

}  // namespace weir
