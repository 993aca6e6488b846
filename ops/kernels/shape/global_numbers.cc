#include "ops/kernels/shape/global_numbers.h"

namespace weir::kernels {

GlobalNumbers::GlobalNumbers(const TensorSlice& x) {
  // Axes that the shard has whole join into stretches.
  int axis = static_cast<int>(x.shape.size());
  int64_t stride = 1;
  while (axis > 0) {
    --axis;
    stretch_ *= x.shape[axis];
    first_ += x.offset[axis] * stride;
    stride *= x.global_shape[axis];
    if (x.shape[axis] != x.global_shape[axis]) break;
  }
  for (int outer = axis - 1; outer >= 0; --outer) {
    outer_.push_back(Axis{x.shape[outer], stride});
    first_ += x.offset[outer] * stride;
    stride *= x.global_shape[outer];
  }
}

}  // namespace weir::kernels
