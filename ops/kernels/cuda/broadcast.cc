#include "ops/kernels/cuda/broadcast.h"

#include "ops/kernels/shape/broadcast_axes.h"
#include "runtime/base/plan_limits.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

static_assert(BroadcastLayout::kAxesMax == plan_limits::kTensorRankMax);
static_assert(BroadcastLayout::kOperandsMax == BroadcastAxes::kOperandsMax);

BroadcastLayout LayoutOf(const BroadcastAxes& axes) {
  BroadcastLayout layout;
  layout.num_axes = static_cast<int>(axes.axes().size());
  layout.count = 1;
  for (int axis = 0; axis < layout.num_axes; ++axis) {
    const BroadcastAxes::Axis& from = axes.axes()[axis];
    layout.sizes[axis] = from.size;
    layout.count *= from.size;
    for (int i = 0; i < BroadcastLayout::kOperandsMax; ++i)
      layout.strides[i][axis] = from.strides[i];
  }
  return layout;
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
