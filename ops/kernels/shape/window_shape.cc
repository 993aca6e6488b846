#include "ops/kernels/shape/window_shape.h"

namespace weir::kernels {

std::vector<int64_t> PerSpatialDim(const Attributes& attrs, const std::string& name, size_t rank,
                                   const std::vector<int64_t>& fallback) {
  std::vector<int64_t> values = attrs.Ints(name);
  if (values.empty()) values = fallback;
  if (values.size() == 1) values.resize(rank, values[0]);
  if (values.size() != rank) values.clear();
  return values;
}

std::vector<WindowAxis> WindowAxes(const Attributes& attrs, const std::vector<int64_t>& kernel,
                                   const std::vector<int64_t>& stride_fallback,
                                   const std::vector<int64_t>& in,
                                   const std::vector<int64_t>& out) {
  const size_t rank = kernel.size();
  const std::vector<int64_t> stride = PerSpatialDim(attrs, "stride", rank, stride_fallback),
                             padding = PerSpatialDim(attrs, "padding", rank, {0}),
                             dilation = PerSpatialDim(attrs, "dilation", rank, {1});
  std::vector<WindowAxis> axes;
  if (stride.empty() || padding.empty() || dilation.empty() || in.size() != rank ||
      out.size() != rank) {
    return axes;
  }
  for (size_t d = 0; d < rank; ++d) {
    const WindowAxis axis{in[d], out[d], kernel[d], stride[d], padding[d], dilation[d]};
    const bool fits = axis.in >= 0 && axis.out >= 0 && axis.kernel >= 1 && axis.stride >= 1 &&
                      axis.padding >= 0 && axis.dilation >= 1;
    if (!fits) return {};
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace weir::kernels
