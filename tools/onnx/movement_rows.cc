// Translations of operations that move elements: shapes, pieces, indices.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tools/onnx/shapes.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

void Reshape(Translation& t) {
  const ValueId x = t.Any(0);
  const std::vector<int64_t> to = ReshapedShape(t, t.shape(x));
  if (t.ok() && to == t.shape(x)) return t.ResultInput(0, 0);
  t.Result(t.Reshape(x, to));
}

void Transpose(Translation& t) {
  const ValueId x = t.Any(0);
  const std::vector<int64_t> perm = PermutationOf(t, t.rank(x));
  if (t.ok() && std::is_sorted(perm.begin(), perm.end())) return t.ResultInput(0, 0);
  t.Result(t.Permute(x, perm));
}

void Concat(Translation& t) {
  std::vector<ValueId> parts;
  for (int i = 0; i < t.num_inputs(); ++i) parts.push_back(t.Any(i));
  if (!t.ok() || parts.empty()) return t.Fail("operands that are missing");
  const int64_t axis = t.Axis(t.Int("axis", 1), t.rank(parts[0]));
  if (parts.size() == 1) return t.ResultInput(0, 0);
  t.Result(t.Add("concat", parts, {{"axis", axis}}));
}

void Slice(Translation& t) {
  ValueId x = t.Any(0);
  const std::vector<std::vector<int64_t>> taken = SliceIndices(t, t.shape(x));
  for (size_t d = 0; t.ok() && d < taken.size(); ++d) x = t.Take(x, static_cast<int>(d), taken[d]);
  if (t.ok() && x == t.input(0).value) return t.ResultInput(0, 0);
  t.Result(x);
}

void Split(Translation& t) {
  const ValueId x = t.Any(0);
  const int axis = t.Axis(t.Int("axis", 0), t.rank(x));
  if (!t.ok()) return;
  const int64_t size = t.shape(x)[axis], count = t.node().output_size();
  std::vector<int64_t> sizes = t.HasAttr("split") ? t.Ints("split") : std::vector<int64_t>{};
  if (t.Has(1)) sizes = t.KnownInts(1);
  if (sizes.empty() && count > 0) {
    const int64_t each = (size + count - 1) / count;  // the last part may be smaller
    for (int64_t i = 0; i < count; ++i) sizes.push_back(std::min(each, size - i * each));
  }
  if (static_cast<int64_t>(sizes.size()) != count) return t.Fail("as many sizes as results");
  int64_t begin = 0;
  for (size_t i = 0; t.ok() && i < sizes.size(); ++i) {
    if (sizes[i] < 1) return t.Fail("a part without elements");
    t.Result(static_cast<int>(i),
             t.Add("slice", {x}, {{"axis", int64_t{axis}}, {"begin", begin}, {"size", sizes[i]}}));
    begin += sizes[i];
  }
  if (t.ok() && begin != size) t.Fail("sizes that do not add up to the dimension");
}

void Expand(Translation& t) {
  ValueId x = t.X(0);
  const std::vector<int64_t> to = Broadcast(t, t.shape(x), t.KnownInts(1));
  if (!t.ok()) return;
  std::vector<int64_t> padded = t.shape(x);
  padded.insert(padded.begin(), to.size() - padded.size(), 1);
  if (to == t.shape(x)) return t.ResultInput(0, 0);
  t.Result(t.Expand(t.Reshape(x, padded), to));
}

void Tile(Translation& t) {
  ValueId x = t.Any(0);
  const std::vector<int64_t> repeats = t.KnownInts(1);
  if (!t.ok()) return;
  if (static_cast<int>(repeats.size()) != t.rank(x))
    return t.Fail("one number of repeats per dimension");
  for (int d = 0; t.ok() && d < t.rank(x); ++d) {
    if (repeats[d] < 1 || repeats[d] > 1024)
      return t.Fail(absl::StrCat(repeats[d], " repeats; at most 1024"));
    if (repeats[d] == 1) continue;
    x = t.Add("concat", std::vector<ValueId>(repeats[d], x), {{"axis", int64_t{d}}});
  }
  if (t.ok() && x == t.input(0).value) return t.ResultInput(0, 0);
  t.Result(x);
}

// Gather by known indices takes pieces. By indices that are inputs, it is an embedding.
void Gather(Translation& t) {
  const ValueId x = t.Has(1) && t.input(1).constant != nullptr ? t.Any(0) : t.X(0);
  const int axis = t.Axis(t.Int("axis", 0), t.rank(x));
  if (!t.ok()) return;
  const std::vector<int64_t> shape = t.shape(x), of_indices = t.input(1).shape;
  if (!t.ok()) return;
  std::vector<int64_t> to(shape.begin(), shape.begin() + axis);
  to.insert(to.end(), of_indices.begin(), of_indices.end());
  to.insert(to.end(), shape.begin() + axis + 1, shape.end());
  if (t.input(1).constant != nullptr) {
    std::vector<int64_t> indices = t.KnownInts(1);
    for (int64_t& index : indices) index = index < 0 ? index + shape[axis] : index;
    return t.Result(t.Reshape(t.Take(x, axis, indices), to));
  }
  // The table is [size of the axis, everything else]; the result gets the axis back in its place.
  std::vector<int64_t> perm(shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin(), perm.begin() + axis, perm.begin() + axis + 1);
  const ValueId front = t.Permute(x, perm);
  const int64_t rest = Count(shape) / shape[axis];
  ValueId rows = t.Add("embedding", {t.Reshape(front, {shape[axis], rest}), t.Any(1)});
  std::vector<int64_t> unfolded = of_indices;
  for (size_t d = 1; d < perm.size(); ++d) unfolded.push_back(shape[perm[d]]);
  rows = t.Reshape(rows, unfolded);
  std::vector<int64_t> back;
  const auto count = static_cast<int64_t>(of_indices.size());
  for (int64_t d = 0; d < axis; ++d) back.push_back(count + d);
  for (int64_t d = 0; d < count; ++d) back.push_back(d);
  for (int64_t d = axis; d + 1 < static_cast<int64_t>(shape.size()); ++d) back.push_back(count + d);
  t.Result(t.Permute(rows, back));
}

// Returns the place in a dimension that a place beside it stands for, by the mode of Pad.
int64_t PaddedIndex(const std::string& mode, int64_t at, int64_t size) {
  if (mode == "edge") return std::clamp<int64_t>(at, 0, size - 1);
  if (mode == "wrap") return (at % size + size) % size;
  const int64_t period = std::max<int64_t>(2 * (size - 1), 1);  // reflect
  at = (at % period + period) % period;
  return at < size ? at : period - at;
}

void Pad(Translation& t) {
  ValueId x = t.X(0);
  std::vector<int64_t> pads = t.HasAttr("pads") ? t.Ints("pads") : t.KnownInts(1);
  if (!t.ok()) return;
  const int rank = t.rank(x);
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (t.Has(3)) axes = t.KnownInts(3);
  if (pads.size() != 2 * axes.size()) return t.Fail("two numbers of pads per axis");
  const Tensor* fill = t.KnownNumber(2);
  if (t.Has(2) && fill == nullptr) return t.Fail("a value that depends on the inputs");
  const float value = fill != nullptr ? fill->reals[0] : static_cast<float>(t.Real("value", 0));
  const std::string mode = t.Str("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "wrap" && mode != "reflect")
    return t.Fail(absl::StrCat("mode \"", mode, "\""));
  for (size_t i = 0; t.ok() && i < axes.size(); ++i) {
    const int axis = t.Axis(axes[i], rank);
    const int64_t before = pads[i], after = pads[i + axes.size()];
    if (!t.ok()) return;
    const int64_t size = t.shape(x)[axis];
    if (size > kFoldedElementsMax || before < -size || after < -size || before > 65536 ||
        after > 65536)
      return t.Fail(absl::StrCat("pads of ", before, " and ", after));
    if (mode == "constant") {
      std::vector<int64_t> kept(
          std::max<int64_t>(size + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0), 0));
      std::iota(kept.begin(), kept.end(), std::max<int64_t>(-before, 0));
      x = t.Padded(t.Take(x, axis, kept), axis, std::max<int64_t>(before, 0),
                   std::max<int64_t>(after, 0), value);
      continue;
    }
    std::vector<int64_t> indices;
    for (int64_t at = -before; at < size + after; ++at)
      indices.push_back(PaddedIndex(mode, at, size));
    x = t.Take(x, axis, indices);
  }
  if (t.ok() && x == t.input(0).value) return t.ResultInput(0, 0);
  t.Result(x);
}

// [n, c, h, w] with blocks of `b`: the columns and rows of a block go to the channels, or come from
// them.
void SpaceToDepth(Translation& t) {
  const ValueId x = t.X(0);
  const std::vector<int64_t> s = t.shape(x);
  const int64_t b = t.Int("blocksize", 0);
  if (!t.ok() || s.size() != 4 || b < 1 || s[2] % b != 0 || s[3] % b != 0)
    return t.Fail("a tensor of 4 dimensions whose last two are multiples of blocksize");
  const ValueId cut = t.Reshape(x, {s[0], s[1], s[2] / b, b, s[3] / b, b});
  t.Result(t.Reshape(t.Permute(cut, {0, 3, 5, 1, 2, 4}), {s[0], s[1] * b * b, s[2] / b, s[3] / b}));
}

void DepthToSpace(Translation& t) {
  const ValueId x = t.X(0);
  const std::vector<int64_t> s = t.shape(x);
  const int64_t b = t.Int("blocksize", 0);
  if (!t.ok() || s.size() != 4 || b < 1 || b > 65536 || s[1] % (b * b) != 0)
    return t.Fail("a tensor of 4 dimensions whose channels are a multiple of blocksize^2");
  const int64_t c = s[1] / (b * b);
  const bool columns_first = t.Str("mode", "DCR") == "CRD";
  const ValueId cut =
      columns_first ? t.Permute(t.Reshape(x, {s[0], c, b, b, s[2], s[3]}), {0, 1, 4, 2, 5, 3})
                    : t.Permute(t.Reshape(x, {s[0], b, b, c, s[2], s[3]}), {0, 3, 4, 1, 5, 2});
  t.Result(t.Reshape(cut, {s[0], c, s[2] * b, s[3] * b}));
}

// A matrix of zeros and ones times x is exact, and so is the triangle of a matrix.
void Trilu(Translation& t) {
  const ValueId x = t.X(0);
  const std::vector<int64_t> k = t.Has(1) ? t.KnownInts(1) : std::vector<int64_t>{0};
  if (!t.ok() || t.rank(x) < 2 || k.size() != 1) return t.Fail("a matrix and one number");
  const int64_t rows = t.shape(x)[t.rank(x) - 2], columns = t.shape(x).back();
  if (rows > kFoldedElementsMax / columns) return t.Fail("a matrix of too many elements");
  std::vector<float> stays;
  const bool upper = t.Int("upper", 1) != 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column)
      stays.push_back((upper ? column - row >= k[0] : column - row <= k[0]) ? 1.0f : 0.0f);
  }
  t.Result(t.Add("mul", {x, t.Constant(std::move(stays), {rows, columns})}));
}

}  // namespace

std::vector<Row> MovementRows() {
  return {
      {"Reshape", 5, Reshape},
      {"Flatten", 1, Reshape},
      {"Squeeze", 1, Reshape},
      {"Unsqueeze", 1, Reshape},
      {"Transpose", 1, Transpose},
      {"Concat", 4, Concat},
      {"Slice", 1, Slice},
      {"Split", 2, Split},
      {"Expand", 8, Expand},
      {"Tile", 6, Tile},
      {"Gather", 1, Gather},
      {"Pad", 2, Pad},
      {"SpaceToDepth", 1, SpaceToDepth},
      {"DepthToSpace", 1, DepthToSpace},
      {"Trilu", 14, Trilu},
  };
}

}  // namespace weir::onnx
