// The windows of a kernel over the spatial dimensions of its shards. The attributes `stride`,
// `padding` and `dilation` hold one number per spatial dimension, or one for all, or none.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/attributes.h"

namespace weir::kernels {

struct WindowAxis {
  int64_t in = 1;   // elements that the windows slide over
  int64_t out = 1;  // windows
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;

  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  // Elements of padding on the right that windows reach; negative: elements that none reaches.
  int64_t padding_right() const { return (out - 1) * stride + extent() - in - padding; }
};

// Returns the attribute with `rank` numbers; `fallback` for each where there is none; empty if
// there is another number of items.
std::vector<int64_t> PerSpatialDim(const Attributes& attrs, const std::string& name, size_t rank,
                                   const std::vector<int64_t>& fallback);

// Returns the windows with `kernel` elements per spatial dimension from sizes `in` to `out`; empty
// if the attributes or sizes do not fit each other.
std::vector<WindowAxis> WindowAxes(const Attributes& attrs, const std::vector<int64_t>& kernel,
                                   const std::vector<int64_t>& stride_fallback,
                                   const std::vector<int64_t>& in, const std::vector<int64_t>& out);

}  // namespace weir::kernels
