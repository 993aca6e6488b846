// The order in which the emulation runs the blocks of a grid and the threads of a block, for code
// that is not compiled for the emulation. Thread rule: any thread.
#pragma once

#include <cstdint>

namespace weir::kernels::cuda_emulated {

struct ThreadOrder {
  // Two orders that are opposite to each other: between two barriers they run every two threads
  // both ways round.
  static constexpr uint64_t kAscending = 0;
  static constexpr uint64_t kDescending = 1;
  // This seed and all above draw an order each.
  static constexpr uint64_t kFirstDrawn = 2;
};

// Sets the order of the launches that start from now on, in all host threads. Until the first call
// the order is kFirstDrawn.
void SetThreadOrder(uint64_t order);

}  // namespace weir::kernels::cuda_emulated
