// Translations of operations that choose elements by their value, or read and write at indices
// that depend on the inputs of the model.
#include "absl/strings/str_cat.h"
#include "tools/onnx/shapes.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

// Elements along an axis whose order is turned, one slice each.
constexpr int64_t kTurnedMax = 64;

// Returns the place of the best element along the axis, of equal ones the last: the first place in
// the turned order is the last one in the order of x.
ValueId LastPlace(Translation& t, ValueId x, int axis, bool largest) {
  const int64_t size = t.shape(x)[axis];
  if (size > kTurnedMax) {
    t.Fail(absl::StrCat("the last place of equal elements along a dimension of ", size,
                        "; Weir has the first, and the last of up to ", kTurnedMax));
    return -1;
  }
  std::vector<int64_t> turned;
  std::vector<float> places;
  for (int64_t place = size; place-- > 0;) {
    turned.push_back(place);
    places.push_back(static_cast<float>(place));
  }
  const ValueId first =
      t.Add("argmax", {t.Take(x, axis, turned)}, {{"axis", int64_t{axis}}, {"largest", largest}});
  const ValueId last =
      t.Add("take", {t.Constant(std::move(places), {size}), first}, {{"axis", int64_t{0}}});
  return t.Add("cast", {last}, {{"to", std::string("i32")}});
}

void ArgBest(Translation& t, bool largest) {
  const ValueId x = t.X(0);
  const int axis = t.Axis(t.Int("axis", 0), t.rank(x));
  if (!t.ok()) return;
  std::vector<int64_t> kept = t.shape(x);
  kept[axis] = 1;
  const ValueId place = t.Int("select_last_index", 0) != 0
                            ? LastPlace(t, x, axis, largest)
                            : t.Add("argmax", {x}, {{"axis", int64_t{axis}}, {"largest", largest}});
  if (!t.ok()) return;
  t.Result(t.Int("keepdims", 1) != 0 ? t.Reshape(place, kept) : place);
}

void ArgMax(Translation& t) { ArgBest(t, true); }
void ArgMin(Translation& t) { ArgBest(t, false); }

void TopK(Translation& t) {
  const ValueId x = t.X(0);
  const std::vector<int64_t> k = t.KnownInts(1);
  const int axis = t.Axis(t.Int("axis", -1), t.rank(x));
  if (!t.ok()) return;
  if (k.size() != 1) return t.Fail("one number of elements");
  const std::vector<ValueId> best =
      t.AddAll("top_k", {x},
               {{"axis", int64_t{axis}}, {"k", k[0]}, {"largest", t.Int("largest", 1) != 0}}, 2);
  for (int output = 0; t.ok() && output < t.node().output_size(); ++output)
    t.Result(output, best[output]);
}

// Returns the indices that operand i is. Constants may count from the end, so they are refused
// where they do.
ValueId Indices(Translation& t, int i) {
  if (t.Has(i) && t.input(i).constant != nullptr) {
    for (const int64_t index : t.input(i).constant->integers) {
      if (index < 0) t.Fail(absl::StrCat("the index ", index, ", which counts from the end"));
    }
    t.Fail("indices that are constants; Weir takes them as inputs of the model");
  }
  return t.Any(i);
}

// Returns the first elements of x along each axis but `axis`, as many as `shape` has.
ValueId CutTo(Translation& t, ValueId x, const std::vector<int64_t>& shape, int axis) {
  const std::vector<int64_t> full = t.shape(x);
  if (t.ok() && full.size() != shape.size()) t.Fail("operands of different ranks");
  for (int d = 0; t.ok() && d < static_cast<int>(shape.size()); ++d) {
    if (d == axis || shape[d] == full[d]) continue;
    x = t.Add("slice", {x}, {{"axis", int64_t{d}}, {"begin", int64_t{0}}, {"size", shape[d]}});
  }
  return x;
}

void GatherElements(Translation& t) {
  const ValueId x = t.X(0), index = Indices(t, 1);
  const int axis = t.Axis(t.Int("axis", 0), t.rank(x));
  if (!t.ok()) return;
  t.Result(t.Add("gather", {CutTo(t, x, t.shape(index), axis), index}, {{"axis", int64_t{axis}}}));
}

void ScatterElements(Translation& t) {
  const std::string reduction = t.Str("reduction", "none");
  if (reduction != "add" && reduction != "none") {
    return t.Fail(absl::StrCat("reduction \"", reduction, "\"; Weir has \"add\" and \"none\""));
  }
  const ValueId x = t.X(0), index = Indices(t, 1), updates = t.X(2);
  const int axis = t.Axis(t.Int("axis", 0), t.rank(x));
  if (!t.ok()) return;
  std::vector<int64_t> to = t.shape(index);
  to[axis] = t.shape(x)[axis];
  if (to != t.shape(x)) return t.Fail("indices for a part of the dimensions beside the axis");
  const auto scattered = [&](ValueId elements) {
    return t.Add("scatter_add", {elements, index}, {{"axis", int64_t{axis}}, {"to", DimsOf(to)}});
  };
  const ValueId sums = scattered(updates);
  if (reduction == "add") return t.Result(t.Add("add", {x, sums}));
  // ONNX forbids equal indices here, so that a sum is the one update of its place.
  const ValueId ones =
      t.Add("cast", {t.Add("equal", {index, index})}, {{"to", std::string("f32")}});
  const ValueId is_updated = t.Add("greater", {scattered(ones)}, {{"value", 0.0}});
  t.Result(t.Add("where", {is_updated, sums, x}));
}

// 1 at the first of the largest elements along an axis, and 0 elsewhere.
void Hardmax(Translation& t) {
  const ValueId x = t.X(0);
  const int axis = t.Axis(t.Int("axis", -1), t.rank(x));
  if (!t.ok()) return;
  const ValueId place = t.Add("argmax", {x}, {{"axis", int64_t{axis}}, {"largest", true}});
  if (!t.ok()) return;
  std::vector<int64_t> to = t.shape(place);
  to.push_back(t.shape(x)[axis]);
  t.Result(t.FromLast(t.Add("one_hot", {place}, {{"to", DimsOf(to)}}), axis));
}

void OneHot(Translation& t) {
  const ValueId ids = Indices(t, 0);
  const std::vector<int64_t> depth = t.KnownInts(1);
  const Tensor* values = t.Known(2);
  const int axis = t.Axis(t.Int("axis", -1), t.rank(ids) + 1);
  if (!t.ok()) return;
  if (depth.size() != 1 || values->reals.size() != 2) return t.Fail("a depth, and two real values");
  std::vector<int64_t> to = t.shape(ids);
  to.push_back(depth[0]);
  const double off = values->reals[0], on = values->reals[1];
  ValueId y = t.Scaled(t.Add("one_hot", {ids}, {{"to", DimsOf(to)}}), on - off);
  if (off != 0) y = t.Plus(y, off);
  t.Result(t.FromLast(y, axis));
}

void CumSum(Translation& t) {
  const ValueId x = t.X(0);
  const std::vector<int64_t> wanted = t.KnownInts(1);
  if (t.ok() && wanted.size() != 1) return t.Fail("one axis");
  if (!t.ok()) return;
  const int axis = t.Axis(wanted[0], t.rank(x));
  t.Result(t.Add("cumsum", {x},
                 {{"axis", int64_t{axis}},
                  {"exclusive", t.Int("exclusive", 0) != 0},
                  {"reverse", t.Int("reverse", 0) != 0}}));
}

}  // namespace

std::vector<Row> IndexRows() {
  return {
      {"ArgMax", 1, ArgMax},
      {"ArgMin", 1, ArgMin},
      {"TopK", 10, TopK},
      {"GatherElements", 11, GatherElements},
      {"ScatterElements", 11, ScatterElements},
      {"Scatter", 9, ScatterElements},
      {"Hardmax", 13, Hardmax},
      {"OneHot", 9, OneHot},
      {"CumSum", 11, CumSum},
  };
}

}  // namespace weir::onnx
