#include "ops/kernels/shape/conv_shape.h"

namespace weir::kernels {
namespace {

std::vector<int64_t> SpatialOf(const TensorSlice& operand) {
  return {operand.shape.begin() + 2, operand.shape.end()};
}

}  // namespace

ConvShape ConvShapeOf(const TensorSlice& wide, const TensorSlice& w, const TensorSlice& narrow,
                      const KernelSpec& spec, SpecCheck* check) {
  ConvShape shape;
  const size_t rank = wide.shape.size();
  check->Expect(rank >= 3 && rank <= 5 && w.shape.size() == rank && narrow.shape.size() == rank,
                "operands with a batch, channels and 1 to 3 spatial dimensions");
  if (!check->ok()) return shape;
  const int64_t in = wide.shape[1], out = narrow.shape[1];
  shape.images = wide.shape[0];
  // A shard of one group may hold a part of its channels; shards of several groups hold whole ones.
  shape.groups = spec.attrs.Int("groups", 1) == 1 ? 1 : in / std::max<int64_t>(1, w.shape[1]);
  shape.in = w.shape[1];
  shape.out = shape.groups == 0 ? 0 : out / shape.groups;
  shape.axes = WindowAxes(spec.attrs, SpatialOf(w), {1}, SpatialOf(wide), SpatialOf(narrow));
  check->Expect(narrow.shape[0] == wide.shape[0] && in == shape.groups * shape.in &&
                    out == shape.groups * shape.out && w.shape[0] == out &&
                    shape.axes.size() + 2 == rank,
                "[b, k, s...], w[n, k / groups, window...] and [b, n, t...] that fit each other");
  return shape;
}

}  // namespace weir::kernels
