// Makes an AxisWalk on the host. Thread rule: pure function.
#pragma once

#include "ops/kernels/cuda/axis_walk.h"
#include "ops/kernels/shape/axis_groups.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Precondition: the axes are legal, and the shape has at most kTensorRankMax axes.
AxisWalk AxisWalkOf(const Shape& shape, const std::vector<int64_t>& axes);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
