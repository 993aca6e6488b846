// The axes of a result whose operands repeat (broadcast_axes.h), as kernels of a GPU get them.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"

namespace weir::kernels {
class BroadcastAxes;
}

namespace weir::kernels::WEIR_CUDA_SPACE {

struct BroadcastLayout {
  static constexpr int kAxesMax = 16;  // of a tensor (runtime/base/plan_limits.h)
  static constexpr int kOperandsMax = 3;

  int num_axes = 1;
  int64_t count = 0;  // elements of the result
  // From the outermost axis. Strides count elements, and are 0 where the operand repeats.
  int64_t sizes[kAxesMax] = {};
  int64_t strides[kOperandsMax][kAxesMax] = {};

  // Returns whether packs of n elements of the result may be computed at once: n divides the last
  // axis, or that axis is all there is.
  bool Packs(int64_t n) const { return num_axes == 1 || sizes[num_axes - 1] % n == 0; }
};

// Precondition: `axes` are those of a tensor whose rank is at most kAxesMax.
BroadcastLayout LayoutOf(const BroadcastAxes& axes);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
