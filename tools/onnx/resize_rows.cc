// Translation of Resize. Each axis is resized by a product with a matrix that is known at import: a
// column has the weights of the places that a place of the result is made of.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

using Sizes = std::vector<int64_t>;

constexpr int64_t kResizedMax = 1 << 16;  // places of an axis, before and after

// A ResizedAxis says how one axis is resized.
struct ResizedAxis {
  int axis = 0;
  int64_t from = 0, to = 0;
  double scale = 1;
  double begin = 0, end = 1;  // the part of the axis that tf_crop_and_resize takes, in shares
};

// The settings of a node that hold for all axes.
struct ResizeForm {
  std::string kind, coordinates, rounding;
  bool smooths = false;           // antialias
  bool excludes_outside = false;  // places beyond the edges do not count
  double cubic = -0.75;
};

// Returns the place of x that place `at` of the result comes from.
double Source(const ResizeForm& form, const ResizedAxis& a, int64_t at) {
  const auto place = static_cast<double>(at), from = static_cast<double>(a.from);
  const double width = a.scale * from;  // of the result, without rounding
  if (form.coordinates == "align_corners") return width == 1 ? 0 : place * (from - 1) / (width - 1);
  if (form.coordinates == "asymmetric") return place / a.scale;
  if (form.coordinates == "tf_crop_and_resize") {
    const double span = (a.end - a.begin) * (from - 1);
    return a.begin * (from - 1) + (width == 1 ? span / 2 : place * span / (width - 1));
  }
  if (form.coordinates == "pytorch_half_pixel" && width == 1) return -0.5;
  const double centred = (place + 0.5) / a.scale - 0.5;
  if (form.coordinates != "half_pixel_symmetric") return centred;
  return from / 2 * (1 - static_cast<double>(a.to) / width) + centred;
}

double Triangle(double distance) { return std::max(0.0, 1 - std::abs(distance)); }

// Keys' cubic with parameter a.
double Cubic(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

int64_t Nearest(const ResizeForm& form, double source) {
  if (form.rounding == "floor") return static_cast<int64_t>(std::floor(source));
  if (form.rounding == "ceil") return static_cast<int64_t>(std::ceil(source));
  return static_cast<int64_t>(form.rounding == "round_prefer_ceil" ? std::floor(source + 0.5)
                                                                   : std::ceil(source - 0.5));
}

// Adds the weights of one place of the result to `column`, one weight per place of x.
void AddWeights(const ResizeForm& form, const ResizedAxis& a, double source,
                std::vector<double>* column) {
  const auto clamped = [&](int64_t place) { return std::clamp<int64_t>(place, 0, a.from - 1); };
  if (form.kind == "nearest") {
    (*column)[clamped(Nearest(form, source))] += 1;
    return;
  }
  const bool cubic = form.kind == "cubic";
  const double shrink = form.smooths ? std::min(a.scale, 1.0) : 1;
  const double reach = (cubic ? 2 : 1) / shrink;
  std::vector<std::pair<int64_t, double>> weights;
  double sum = 0;
  for (auto place = static_cast<int64_t>(std::floor(source - reach));
       place <= static_cast<int64_t>(std::ceil(source + reach)); ++place) {
    if (form.excludes_outside && (place < 0 || place >= a.from)) continue;
    const double distance = (static_cast<double>(place) - source) * shrink;
    const double weight = cubic ? Cubic(distance, form.cubic) : Triangle(distance);
    sum += weight;
    weights.emplace_back(place, weight);
  }
  for (const auto& [place, weight] : weights)
    (*column)[clamped(place)] += sum == 0 ? 0 : weight / sum;
}

// Returns x resized along one axis. `outside` gets the places of the result that lie beyond x.
ValueId Resized(Translation& t, ValueId x, const ResizeForm& form, const ResizedAxis& a,
                std::vector<bool>* outside) {
  outside->assign(a.to, false);
  if (a.from > kFoldedElementsMax / a.to) t.Fail("an axis of too many places");
  if (!t.ok()) return -1;
  const bool crops = form.coordinates == "tf_crop_and_resize";
  std::vector<float> matrix(a.from * a.to, 0.0f);
  for (int64_t at = 0; at < a.to; ++at) {
    const double source = Source(form, a, at);
    // A source far beyond x is the edge, whatever the weights.
    const auto last = static_cast<double>(a.from - 1);
    (*outside)[at] = crops && (source < 0 || source > last);
    if ((*outside)[at]) continue;
    std::vector<double> column(a.from, 0.0);
    AddWeights(form, a, std::clamp(source, -last - 4, 2 * last + 4), &column);
    for (int64_t place = 0; place < a.from; ++place)
      matrix[place * a.to + at] = static_cast<float>(column[place]);
  }
  return t.FromLast(
      t.Add("matmul", {t.ToLast(x, a.axis), t.Constant(std::move(matrix), {a.from, a.to})}),
      a.axis);
}

// Reads which axes become how long. Empty: a failure.
std::vector<ResizedAxis> AxesOf(Translation& t, const Sizes& shape) {
  Sizes axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (t.HasAttr("axes")) axes = t.Ints("axes");
  for (int64_t& axis : axes) axis = t.Axis(axis, static_cast<int>(shape.size()));
  const bool by_scale = t.Has(2) && Count(t.input(2).shape) > 0;
  const Tensor* wanted = t.Known(by_scale ? 2 : 3);
  if (!t.ok()) return {};
  const bool crops = t.Str("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";
  const Tensor* part = crops ? t.Known(1) : nullptr;
  if (t.ok() && (wanted->size() != static_cast<int64_t>(axes.size()) ||
                 (part != nullptr && part->size() != 2 * wanted->size())))
    t.Fail("one scale or size per axis");
  if (!t.ok()) return {};
  std::vector<ResizedAxis> resized;
  std::optional<double> common;  // the scale of all axes
  const std::string policy = t.Str("keep_aspect_ratio_policy", "stretch");
  for (size_t i = 0; i < axes.size(); ++i) {
    ResizedAxis a{static_cast<int>(axes[i]), shape[axes[i]]};
    const double number = wanted->number(static_cast<int64_t>(i));
    const auto from = static_cast<double>(a.from);
    a.scale = by_scale ? number : number / from;
    const double to = std::floor(by_scale ? number * from : number);
    if (!(to >= 1 && to <= kResizedMax) || a.from > kResizedMax) {
      t.Fail(absl::StrCat("an axis of ", a.from, " places that becomes ", to, " long"));
      return {};
    }
    a.to = static_cast<int64_t>(to);
    if (part != nullptr) {
      a.begin = part->number(static_cast<int64_t>(i));
      a.end = part->number(static_cast<int64_t>(i + axes.size()));
    }
    if (!common.has_value() || (policy == "not_larger" ? a.scale < *common : a.scale > *common))
      common = a.scale;
    resized.push_back(a);
  }
  if (by_scale || policy == "stretch") return resized;
  for (ResizedAxis& a : resized) {
    a.scale = *common;
    a.to = std::clamp<int64_t>(
        static_cast<int64_t>(std::floor(*common * static_cast<double>(a.from) + 0.5)), 1,
        kResizedMax);
  }
  return resized;
}

void Resize(Translation& t) {
  ValueId x = t.X(0);
  if (!t.ok()) return;
  const Sizes shape = t.shape(x);
  const ResizeForm form = {t.Str("mode", "nearest"),
                           t.Str("coordinate_transformation_mode", "half_pixel"),
                           t.Str("nearest_mode", "round_prefer_floor"),
                           t.Int("antialias", 0) != 0,
                           t.Int("exclude_outside", 0) != 0,
                           t.Real("cubic_coeff_a", -0.75)};
  if (form.kind != "nearest" && form.kind != "linear" && form.kind != "cubic")
    return t.Fail(absl::StrCat("mode \"", form.kind, "\""));
  const std::vector<ResizedAxis> axes = AxesOf(t, shape);
  // All places beyond x have one value. The products leave 0 there.
  Sizes apart(shape.size(), 1);
  std::vector<std::vector<bool>> outside(shape.size(), {false});
  bool any_outside = false;
  for (const ResizedAxis& a : axes) {
    if (a.from == a.to && a.scale == 1 && form.coordinates != "tf_crop_and_resize") continue;
    x = Resized(t, x, form, a, &outside[a.axis]);
    apart[a.axis] = a.to;
    for (const bool is_outside : outside[a.axis]) any_outside = any_outside || is_outside;
  }
  const double value = t.Real("extrapolation_value", 0);
  if (!t.ok() || !any_outside || value == 0) return t.Result(x);
  const int64_t count = Count(apart);
  if (count < 1 || count > kFoldedElementsMax) return t.Fail("a result of too many places");
  std::vector<float> added(count, 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t d = apart.size(); d-- > 0;) {
      if (outside[d][rest % apart[d]]) added[i] = static_cast<float>(value);
      rest /= apart[d];
    }
  }
  t.Result(t.Add("add", {x, t.Constant(std::move(added), apart)}));
}

}  // namespace

std::vector<Row> ResizeRows() { return {{"Resize", 11, Resize}}; }

}  // namespace weir::onnx
