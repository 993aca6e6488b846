// The sizes of a pooling over the windows of its shards. Thread rule: value, pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ops/kernels/shape/window_shape.h"
#include "runtime/base/attributes.h"
#include "runtime/base/tensor_slice.h"

namespace weir::kernels {

constexpr int kPoolAxes = 3;

// The windows over a plane of three dimensions; dimensions that an operand lacks have size 1.
struct PoolShape {
  int64_t planes = 0;
  std::array<WindowAxis, kPoolAxes> axes;

  int64_t in() const { return axes[0].in * axes[1].in * axes[2].in; }
  int64_t out() const { return axes[0].out * axes[1].out * axes[2].out; }
};

// `x` and `y` are the operands with the elements and with the windows. nullopt if they do not fit
// each other and the attributes.
std::optional<PoolShape> PoolShapeOf(const Attributes& attrs, const TensorSlice& x,
                                     const TensorSlice& y);

}  // namespace weir::kernels
