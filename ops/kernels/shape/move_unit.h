// The unit in which a kernel moves bytes. Thread rule: pure.
#pragma once

#include <cstdint>

namespace weir::kernels {

// Returns the largest of 1, 2, 4, 8 and 16 that divides all the numbers; zeros are divided by all.
template <typename... Numbers>
constexpr int MoveUnit(Numbers... numbers) {
  const uint64_t all = (static_cast<uint64_t>(numbers) | ...);
  int unit = 16;
  while (all % static_cast<uint64_t>(unit) != 0) unit /= 2;
  return unit;
}

}  // namespace weir::kernels
