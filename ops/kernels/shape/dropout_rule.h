// Which elements dropout keeps, and by what it multiplies them. Thread rule: values and pure
// functions.
#pragma once

#include <cmath>
#include <cstdint>

namespace weir::kernels {

// An element is kept if its 24 random bits (the upper bits of its word of `key`, runtime/base/
// random.h) are at least `threshold`. Kept elements are multiplied by `factor`.
struct DropoutRule {
  uint64_t key = 0;
  uint32_t threshold = 0;
  float factor = 1;
};

// Returns the rule for a rate from 0 to 1, without the key.
inline DropoutRule DropoutRuleOf(double rate) {
  return {0, static_cast<uint32_t>(std::ceil(rate * 0x1p24)),
          rate < 1 ? static_cast<float>(1 / (1 - rate)) : 0.0f};
}

}  // namespace weir::kernels
