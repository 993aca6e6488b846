#include "ops/kernels/shape/pool_shape.h"

#include <algorithm>
#include <vector>

namespace weir::kernels {

std::optional<PoolShape> PoolShapeOf(const Attributes& attrs, const TensorSlice& x,
                                     const TensorSlice& y) {
  const size_t rank = x.shape.size();
  if (rank < 3 || rank > 2 + kPoolAxes || y.shape.size() != rank || x.shape[0] != y.shape[0] ||
      x.shape[1] != y.shape[1]) {
    return std::nullopt;
  }
  const std::vector<int64_t> kernel = PerSpatialDim(attrs, "kernel", rank - 2, {});
  const std::vector<WindowAxis> axes =
      WindowAxes(attrs, kernel, kernel, {x.shape.begin() + 2, x.shape.end()},
                 {y.shape.begin() + 2, y.shape.end()});
  if (axes.size() + 2 != rank) return std::nullopt;
  PoolShape shape;
  shape.planes = x.shape[0] * x.shape[1];
  std::copy(axes.begin(), axes.end(), shape.axes.end() - static_cast<int64_t>(axes.size()));
  // Each window has an element of x.
  const bool covered = std::all_of(axes.begin(), axes.end(), [](const WindowAxis& axis) {
    return axis.in >= 1 && axis.out >= 1 && axis.padding * 2 <= axis.kernel &&
           (axis.padding == 0 || axis.dilation <= axis.in) &&
           (axis.out - 1) * axis.stride < axis.in + axis.padding;
  });
  return covered ? std::optional<PoolShape>(shape) : std::nullopt;
}

}  // namespace weir::kernels
