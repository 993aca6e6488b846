#include "ops/kernels/cuda/axis_walk_of.h"

#include "runtime/base/plan_limits.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

static_assert(AxisWalk::kOuterMax >= plan_limits::kTensorRankMax);

AxisWalk AxisWalkOf(const Shape& shape, const std::vector<int64_t>& axes) {
  const AxisGroups groups(shape, axes);
  AxisWalk walk;
  walk.inner_reduced = groups.inner() == AxisGroups::Kind::kReduced;
  walk.row = groups.row();
  walk.num_kept = groups.num_kept();
  walk.num_reduced = groups.num_reduced();
  for (const AxisGroups::Group& group : groups.outer()) {
    walk.outer[walk.num_outer++] = {group.size, group.stride,
                                    group.kind == AxisGroups::Kind::kReduced};
  }
  return walk;
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
