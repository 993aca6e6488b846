// Division that rounds down, as numbers of steps and tokens before the first need it.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace weir {

// Returns the quotient rounded towards minus infinity. Precondition: b > 0.
constexpr int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }

}  // namespace weir
