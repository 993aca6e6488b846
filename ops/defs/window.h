// Windows that slide over the spatial dimensions of a tensor [batch, channels, ...]: the windows of
// convolutions and of pooling. There are 1 to 3 spatial dimensions.
//
// Attributes give `stride`, `padding` and `dilation` as lists with one number per spatial
// dimension, or with one number for all of them. The padding lies on both sides.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/defs/op_def.h"
#include "ops/defs/operand_check.h"

namespace weir::ops {

// A WindowAxis is the window along one spatial dimension.
struct WindowAxis {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;

  // The number of positions from the first element of a window to its last one.
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  // True if each element has a window of its own, so that a shard of the dimension is enough.
  bool is_point() const { return kernel == 1 && stride == 1 && padding == 0; }
};

// Checks that operand i has a batch, channels and 1 to 3 spatial dimensions: W0307; W0308 for a
// spatial dimension above 2^31.
void CheckSpatial(int i, OperandCheck* check);

// Returns the attribute `name` with one number per spatial dimension; `fallback` where the list is
// empty. W0310 for another number of items, and for a number below `least` or above 2^31.
absl::StatusOr<std::vector<int64_t>> PerSpatialDim(const Attributes& attrs, const std::string& name,
                                                   const std::vector<int64_t>& fallback,
                                                   int64_t least);

// Returns the windows of `kernel` with the attributes `stride`, `padding` and `dilation`. An empty
// stride is `stride_fallback`. Errors as above.
absl::StatusOr<std::vector<WindowAxis>> WindowOf(const Attributes& attrs,
                                                 const std::vector<int64_t>& kernel,
                                                 const std::vector<int64_t>& stride_fallback);

// Rounding says what happens to a last window that is not whole.
enum class Rounding : uint8_t { kDown, kUp };

// Returns floor((size + 2 padding - extent) / stride) + 1, the number of windows along a dimension.
// kUp counts a last window that is cut off, unless it begins in the padding on the right. W0310 if
// no window fits.
absl::StatusOr<int64_t> NumWindows(const sbp::TensorDim& dim, const WindowAxis& axis,
                                   Rounding rounding);

// Returns a spatial dimension of a result: the dimension of x with another size, and then with unit
// 1.
sbp::TensorDim Resized(const sbp::TensorDim& dim, int64_t size);

// Gives `y` the dimensions of the attribute `to`, unless `to` is empty. W0310 if the sizes differ.
absl::Status NameResult(const InferInput& in, sbp::TensorType* y);

// The attributes, for schemas.
AttrSchema StrideAttr(const std::string& fallback);
AttrSchema PaddingAttr();
AttrSchema DilationAttr();
AttrSchema ResultDimsAttr();

}  // namespace weir::ops
