// The alignment of everything that a kernel reads or writes.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace weir {

// Kernels may assume operands of this alignment, so every offset in a plan is a multiple of it.
inline constexpr int64_t kOperandAlignment = 64;  // bytes

// Returns the least multiple of the alignment that is not below `bytes`. Precondition: 0 or more.
constexpr int64_t AlignUp(int64_t bytes) {
  return (bytes + kOperandAlignment - 1) / kOperandAlignment * kOperandAlignment;
}

}  // namespace weir
