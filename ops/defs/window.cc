#include "ops/defs/window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

constexpr int kSpatialDimsMax = 3;
constexpr int64_t kSizeMax = int64_t{1} << 31;  // products of two numbers then stay below 2^63

}  // namespace

void CheckSpatial(int i, OperandCheck* check) {
  check->MinRank(i, 3);
  if (!check->status().ok()) return;
  const std::vector<sbp::TensorDim>& dims = check->dims(i);
  if (dims.size() > 2 + kSpatialDimsMax) {
    check->Fail({"W0307", "",
                 absl::StrCat("batch, channels and 1 to ", kSpatialDimsMax, " spatial dimensions"),
                 ToText(check->type(i)), ""});
    return;
  }
  for (size_t d = 2; d < dims.size(); ++d) {
    if (dims[d].size <= kSizeMax) continue;
    check->Fail({"W0308", "", absl::StrCat("spatial dimensions of at most ", kSizeMax),
                 ToText(check->type(i)), ""});
  }
}

absl::StatusOr<std::vector<int64_t>> PerSpatialDim(const Attributes& attrs, const std::string& name,
                                                   const std::vector<int64_t>& fallback,
                                                   int64_t least) {
  std::vector<int64_t> values = attrs.Ints(name);
  if (values.empty()) values = fallback;
  if (values.size() == 1) values.resize(fallback.size(), values[0]);
  const bool fits = values.size() == fallback.size() &&
                    std::all_of(values.begin(), values.end(),
                                [&](int64_t v) { return v >= least && v <= kSizeMax; });
  if (fits) return values;
  return Rejected({"W0310", "",
                   absl::StrCat(name, " with one number of ", least,
                                " or more for all spatial dimensions, or with ", fallback.size(),
                                ", one for each"),
                   absl::StrCat("[", absl::StrJoin(values, ", "), "]"),
                   absl::StrCat(name, ": ", std::max<int64_t>(least, 1))});
}

absl::StatusOr<std::vector<WindowAxis>> WindowOf(const Attributes& attrs,
                                                 const std::vector<int64_t>& kernel,
                                                 const std::vector<int64_t>& stride_fallback) {
  const std::vector<int64_t> ones(kernel.size(), 1), zeros(kernel.size(), 0);
  WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> stride,
                        PerSpatialDim(attrs, "stride", stride_fallback, 1));
  WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> padding,
                        PerSpatialDim(attrs, "padding", zeros, 0));
  WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> dilation,
                        PerSpatialDim(attrs, "dilation", ones, 1));
  std::vector<WindowAxis> window;
  for (size_t d = 0; d < kernel.size(); ++d)
    window.push_back({kernel[d], stride[d], padding[d], dilation[d]});
  return window;
}

absl::StatusOr<int64_t> NumWindows(const sbp::TensorDim& dim, const WindowAxis& axis,
                                   Rounding rounding) {
  const int64_t room = dim.size + 2 * axis.padding - axis.extent();
  if (room < 0) {
    return Rejected({"W0310", "",
                     absl::StrCat("a window that fits into dimension ", dim.name, " of ", dim.size,
                                  " elements with ", axis.padding, " of padding on both sides"),
                     absl::StrCat("a window over ", axis.extent(), " elements"),
                     absl::StrCat("padding: ", (axis.extent() - dim.size + 1) / 2)});
  }
  int64_t count = room / axis.stride + 1;
  if (rounding == Rounding::kUp && room % axis.stride != 0 &&
      count * axis.stride < dim.size + axis.padding) {
    ++count;
  }
  return count;
}

sbp::TensorDim Resized(const sbp::TensorDim& dim, int64_t size) {
  return size == dim.size ? dim : sbp::TensorDim{dim.name, size, 1};
}

absl::Status NameResult(const InferInput& in, sbp::TensorType* y) {
  const std::string to = in.attrs.Str("to");
  if (to.empty()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(std::vector<sbp::TensorDim> dims, ParseDims(to, in.dims));
  if (sbp::TensorType{y->dtype, dims}.shape() != y->shape()) {
    return Rejected({"W0310", "", absl::StrCat("attribute to with the sizes of ", ToText(*y)), to,
                     DimsText(y->dims)});
  }
  y->dims = std::move(dims);
  return absl::OkStatus();
}

AttrSchema StrideAttr(const std::string& fallback) {
  return {"stride", AttrKind::kInts, std::vector<int64_t>{},
          absl::StrCat("elements between windows, one number or one per spatial dimension; empty: ",
                       fallback)};
}

AttrSchema PaddingAttr() {
  return {"padding", AttrKind::kInts, std::vector<int64_t>{},
          "elements added on both sides, one number or one per spatial dimension; empty: 0"};
}

AttrSchema DilationAttr() {
  return {"dilation", AttrKind::kInts, std::vector<int64_t>{},
          "elements between those of one window, one number or one per spatial dimension; empty: "
          "1"};
}

AttrSchema ResultDimsAttr() {
  return {.name = "to",
          .kind = AttrKind::kString,
          .fallback = std::string(),
          .doc =
              "all dimensions of y (type text), whose sizes must be those that follow from x; "
              "empty: they have the names of those of x",
          .lists_dims = true};
}

}  // namespace weir::ops
