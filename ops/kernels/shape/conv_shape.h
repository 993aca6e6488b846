// The sizes of a convolution over its shards. Thread rule: value, pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/kernels/shape/spec_check.h"
#include "ops/kernels/shape/window_shape.h"

namespace weir::kernels {

// The sizes of one shard: windows over the wide side [images, groups in, ...] give the narrow side
// [images, groups out, ...].
struct ConvShape {
  int64_t images = 0, groups = 1, in = 0, out = 0;
  std::vector<WindowAxis> axes;

  // True if there is no element on one of the sides. A shard of a dimension that windows of one
  // element go over may have none.
  bool empty() const {
    return images == 0 || groups == 0 || in == 0 || out == 0 ||
           std::any_of(axes.begin(), axes.end(),
                       [](const WindowAxis& axis) { return axis.in == 0 || axis.out == 0; });
  }
  int64_t wide_image() const {
    int64_t size = groups * in;
    for (const WindowAxis& axis : axes) size *= axis.in;
    return size;
  }
  int64_t narrow_image() const {
    int64_t size = groups * out;
    for (const WindowAxis& axis : axes) size *= axis.out;
    return size;
  }
  int64_t weight() const {
    int64_t size = groups * in * out;
    for (const WindowAxis& axis : axes) size *= axis.kernel;
    return size;
  }
  // Products for one image.
  int64_t products() const {
    return narrow_image() / std::max<int64_t>(1, groups * out) * weight();
  }
};

// Returns the sizes of a shard from its three tensors, and expects that they fit each other.
ConvShape ConvShapeOf(const TensorSlice& wide, const TensorSlice& w, const TensorSlice& narrow,
                      const KernelSpec& spec, SpecCheck* check);

}  // namespace weir::kernels
