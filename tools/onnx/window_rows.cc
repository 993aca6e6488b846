// Translations of operations whose windows slide over places: convolution and pooling.
#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

using Sizes = std::vector<int64_t>;

constexpr int64_t kNumberMax = 1 << 16;  // of strides, pads and dilations

// The windows of a node: one number per place dimension.
struct Windows {
  Sizes kernel, stride, dilation, begin, end;  // `begin` and `end` are the pads on both sides
  bool symmetric() const { return begin == end; }
  int64_t extent(size_t d) const { return dilation[d] * (kernel[d] - 1) + 1; }
};

// Returns an attribute with one number per dimension, `fallback` where it is absent.
Sizes NumbersOf(Translation& t, const std::string& name, size_t count, int64_t fallback,
                int64_t least) {
  Sizes numbers = t.HasAttr(name) ? t.Ints(name) : Sizes(count, fallback);
  if (numbers.size() != count)
    t.Fail(absl::StrCat(name, " without one number per place dimension"));
  for (int64_t number : numbers) {
    if (number < least || number > kNumberMax) t.Fail(absl::StrCat(name, " of ", number));
  }
  numbers.resize(count, least);
  return numbers;
}

// Reads the windows over x. With auto_pad SAME there are as many windows as strides fit into the
// size.
Windows WindowsOf(Translation& t, const Sizes& x, const Sizes& kernel) {
  const size_t count = kernel.size();
  Windows w;
  w.kernel = kernel;
  for (int64_t size : kernel) {
    if (size < 1 || size > kNumberMax) t.Fail(absl::StrCat("a window of ", size));
  }
  w.stride = NumbersOf(t, "strides", count, 1, 1);
  w.dilation = NumbersOf(t, "dilations", count, 1, 1);
  const Sizes pads = NumbersOf(t, "pads", 2 * count, 0, 0);
  w.begin.assign(pads.begin(), pads.begin() + static_cast<int64_t>(count));
  w.end.assign(pads.begin() + static_cast<int64_t>(count), pads.end());
  const std::string mode = t.Str("auto_pad", "NOTSET");
  if (mode != "NOTSET" && mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER")
    t.Fail(absl::StrCat("auto_pad \"", mode, "\""));
  for (size_t d = 0; t.ok() && mode != "NOTSET" && d < count; ++d) {
    const int64_t size = x[d + 2], windows = (size + w.stride[d] - 1) / w.stride[d];
    const int64_t pad =
        mode == "VALID" ? 0
                        : std::max<int64_t>((windows - 1) * w.stride[d] + w.extent(d) - size, 0);
    w.begin[d] = mode == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
    w.end[d] = pad - w.begin[d];
  }
  return w;
}

// Returns x with the pads of the windows, filled with `value`; the windows then have none.
ValueId Padded(Translation& t, ValueId x, Windows* w, float value) {
  for (size_t d = 0; d < w->kernel.size(); ++d) {
    x = t.Padded(x, static_cast<int>(d) + 2, w->begin[d], w->end[d], value);
    w->begin[d] = w->end[d] = 0;
  }
  return x;
}

bool HasPlaces(Translation& t, ValueId x) {
  if (t.ok() && t.rank(x) >= 3 && t.rank(x) <= 5) return true;
  t.Fail("an operand that is not [batch, channels, places...] with 1 to 3 place dimensions");
  return false;
}

void Conv(Translation& t) {
  ValueId x = t.X(0);
  const ValueId weight = t.X(1);
  if (!HasPlaces(t, x) || t.rank(weight) != t.rank(x))
    return t.Fail("a weight of other dimensions than x");
  const Sizes of_weight = t.shape(weight);
  Windows w = WindowsOf(t, t.shape(x), {of_weight.begin() + 2, of_weight.end()});
  if (!t.ok()) return;
  if (!w.symmetric()) x = Padded(t, x, &w, 0);
  std::vector<ValueId> operands = {x, weight};
  if (t.Has(2)) operands.push_back(t.X(2));
  t.Result(t.Add("conv", operands,
                 {{"stride", w.stride},
                  {"padding", w.begin},
                  {"dilation", w.dilation},
                  {"groups", t.Int("group", 1)}}));
}

// The result of the transposed windows is cut on both sides by the pads.
void ConvTranspose(Translation& t) {
  const ValueId x = t.X(0), weight = t.X(1);
  if (!HasPlaces(t, x) || t.rank(weight) != t.rank(x))
    return t.Fail("a weight of other dimensions than x");
  const Sizes of_weight = t.shape(weight), shape = t.shape(x);
  const size_t count = shape.size() - 2;
  Windows w = WindowsOf(t, shape, {of_weight.begin() + 2, of_weight.end()});
  const Sizes more = NumbersOf(t, "output_padding", count, 0, 0);
  if (!t.ok()) return;
  const std::string mode = t.Str("auto_pad", "NOTSET");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  Sizes wanted = t.HasAttr("output_shape") ? t.Ints("output_shape") : Sizes();
  if (wanted.size() == count + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && wanted.size() != count)
    return t.Fail("output_shape without one number per place dimension");
  std::vector<ValueId> operands = {x, weight};
  if (t.Has(2)) operands.push_back(t.X(2));
  ValueId y =
      t.Add("conv_transpose", operands,
            {{"stride", w.stride}, {"dilation", w.dilation}, {"groups", t.Int("group", 1)}});
  for (size_t d = 0; t.ok() && d < count; ++d) {
    const int axis = static_cast<int>(d) + 2;
    const int64_t whole = t.shape(y)[axis];  // without pads
    int64_t begin = w.begin[d], size = whole + more[d] - w.begin[d] - w.end[d];
    if (!wanted.empty() || same) {
      size = !wanted.empty() ? wanted[d] : shape[axis] * w.stride[d];
      const int64_t cut = whole + more[d] - size;
      begin = std::max<int64_t>(mode == "SAME_UPPER" ? cut / 2 : cut - cut / 2, 0);
    }
    if (size < 1 || size > (int64_t{1} << 31) || begin < 0)
      return t.Fail("pads that leave another size than there is");
    // Elements beyond the whole are zeros before the bias; only without a bias they are known.
    if (begin + size > whole && t.Has(2)) return t.Fail("output_padding and a bias");
    y = t.Padded(y, axis, 0, std::max<int64_t>(begin + size - whole, 0), 0);
    if (begin > 0 || t.shape(y)[axis] != size)
      y = t.Add("slice", {y}, {{"axis", int64_t{axis}}, {"begin", begin}, {"size", size}});
  }
  t.Result(y);
}

// Returns the attributes of a pool.
Attributes PoolOf(Translation& t, const Windows& w) {
  return {{"kernel", w.kernel},
          {"stride", w.stride},
          {"padding", w.begin},
          {"ceil", t.Int("ceil_mode", 0) != 0}};
}

// True if Weir's pools have the pads: equal on both sides, and at most half of the window.
bool PadsFit(const Windows& w) {
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    if (2 * w.begin[d] > w.kernel[d]) return false;
  }
  return w.symmetric();
}

void MaxPool(Translation& t) {
  ValueId x = t.X(0);
  if (!HasPlaces(t, x)) return;
  const Sizes kernel = t.Ints("kernel_shape");
  if (static_cast<int>(kernel.size()) + 2 != t.rank(x))
    return t.Fail("kernel_shape without one number per place");
  Windows w = WindowsOf(t, t.shape(x), kernel);
  if (!t.ok()) return;
  if (!PadsFit(w)) x = Padded(t, x, &w, -std::numeric_limits<float>::infinity());
  Attributes attrs = PoolOf(t, w);
  attrs.Set("dilation", w.dilation);
  t.Result(t.Add("max_pool", {x}, attrs));
}

// Where pads do not count and differ by side, the mean is that of padded zeros over that of padded
// ones.
void AveragePool(Translation& t) {
  const ValueId x = t.X(0);
  if (!HasPlaces(t, x)) return;
  const Sizes kernel = t.Ints("kernel_shape");
  if (static_cast<int>(kernel.size()) + 2 != t.rank(x))
    return t.Fail("kernel_shape without one number per place");
  Windows w = WindowsOf(t, t.shape(x), kernel);
  if (!t.ok()) return;
  for (int64_t dilation : w.dilation) {
    if (dilation != 1) return t.Fail("dilations");
  }
  const bool counts = t.Int("count_include_pad", 0) != 0;
  if (PadsFit(w)) {
    Attributes attrs = PoolOf(t, w);
    attrs.Set("count_padding", counts);
    return t.Result(t.Add("average_pool", {x}, attrs));
  }
  Windows of_ones = w;
  ValueId y = Padded(t, x, &w, 0);
  y = t.Add("average_pool", {y}, PoolOf(t, w));
  if (!counts) {
    Sizes places = t.shape(x);
    places[0] = places[1] = 1;
    const int64_t number = Count(places);
    if (number > kFoldedElementsMax) return t.Fail("a pool over too many places");
    ValueId share = Padded(t, t.Constant(std::vector<float>(number, 1.0f), places), &of_ones, 0);
    share = t.Add("average_pool", {share}, PoolOf(t, of_ones));
    y = t.Add("div", {y, share});
  }
  t.Result(y);
}

}  // namespace

std::vector<Row> WindowRows() {
  return {
      {"Conv", 1, Conv},
      {"ConvTranspose", 1, ConvTranspose},
      {"MaxPool", 1, MaxPool},
      {"AveragePool", 1, AveragePool},
  };
}

}  // namespace weir::onnx
