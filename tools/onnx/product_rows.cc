// Translations of products: matrices, rotary positions.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tools/onnx/shapes.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

using Sizes = std::vector<int64_t>;

// Returns the product of two tensors of matrices, whose leading dimensions repeat.
ValueId Product(Translation& t, ValueId a, ValueId b) {
  if (!t.ok()) return -1;
  if (t.rank(b) == 2) return t.Add("matmul", {a, b});
  const Sizes of_a = t.shape(a), of_b = t.shape(b);
  const Sizes leading =
      Broadcast(t, {of_a.begin(), of_a.end() - 2}, {of_b.begin(), of_b.end() - 2});
  if (!t.ok()) return -1;
  const auto widened = [&](ValueId x, const Sizes& shape) {
    Sizes padded = shape, to = leading;
    padded.insert(padded.begin(), leading.size() + 2 - shape.size(), 1);
    to.insert(to.end(), shape.end() - 2, shape.end());
    return t.Expand(t.Reshape(x, padded), to);
  };
  return t.Add("batched_matmul", {widened(a, of_a), widened(b, of_b)});
}

void MatMul(Translation& t) {
  ValueId a = t.X(0), b = t.X(1);
  if (!t.ok()) return;
  if (t.rank(a) < 1 || t.rank(b) < 1) return t.Fail("operands that are numbers");
  const bool row = t.rank(a) == 1, column = t.rank(b) == 1;
  if (row) a = t.Reshape(a, {1, t.shape(a)[0]});
  if (column) b = t.Reshape(b, {t.shape(b)[0], 1});
  const ValueId y = Product(t, a, b);
  Sizes to = t.shape(y);
  if (!t.ok()) return;
  if (column) to.pop_back();
  if (row) to.erase(to.end() - (column ? 1 : 2));
  t.Result(t.Reshape(y, to));
}

// alpha a b + beta c
void Gemm(Translation& t) {
  ValueId a = t.X(0);
  const ValueId b = t.X(1);
  const double alpha = t.Real("alpha", 1), beta = t.Real("beta", 1);
  if (t.ok() && (t.rank(a) != 2 || t.rank(b) != 2)) return t.Fail("operands that are no matrices");
  if (t.Int("transA", 0) != 0) a = t.Permute(a, {1, 0});
  const bool transpose = t.Int("transB", 0) != 0;
  const Attributes attrs = transpose ? Attributes{{"transpose_w", true}} : Attributes{};
  const bool has_c = t.Has(2) && beta != 0;
  if (has_c && t.opset() < 7 && t.Int("broadcast", 0) == 0 && t.input(2).shape.size() != 2)
    return t.Fail("a third operand that is no matrix");
  if (has_c && alpha == 1 && beta == 1 && t.input(2).shape.size() == 1 && t.ok() &&
      t.input(2).shape[0] == t.shape(b)[transpose ? 0 : 1])
    return t.Result(t.Add("matmul", {a, b, t.X(2)}, attrs));
  ValueId y = t.Scaled(t.Add("matmul", {a, b}, attrs), alpha);
  if (has_c) y = t.Add("add", {y, t.Scaled(t.X(2), beta)});
  t.Result(y);
}

// Halves or neighbours of the first `rotary_embedding_dim` numbers of each head are turned by known
// angles.
void RotaryEmbedding(Translation& t) {
  const ValueId whole = t.X(0);
  if (!t.ok()) return;
  const Sizes given = t.shape(whole);
  const bool flat = given.size() == 3;  // [b, s, heads * d]
  const int64_t heads = flat ? t.Int("num_heads", 0) : 0;
  if ((flat && (heads < 1 || given[2] % heads != 0)) || (!flat && given.size() != 4))
    return t.Fail(
        "an operand that is neither [b, heads, s, d] nor [b, s, heads * d] with num_heads");
  const ValueId x = flat ? t.Reshape(whole, {given[0], given[1], heads, given[2] / heads})
                         : t.Permute(whole, {0, 2, 1, 3});  // [b, s, heads, d]
  const Sizes s = t.shape(x);
  const int64_t asked = t.Int("rotary_embedding_dim", 0), turned = asked == 0 ? s[3] : asked;
  if (turned < 2 || turned % 2 != 0 || turned > s[3])
    return t.Fail(absl::StrCat("rotary_embedding_dim ", turned));
  ValueId tables[2] = {
      t.X(1), t.X(2)};  // cosines and sines, [b, s, turned / 2], or rows that positions choose
  for (ValueId& table : tables) {
    if (t.Has(3)) table = t.Add("embedding", {table, t.Any(3)});
    if (t.ok() && t.rank(table) != 3) return t.Fail("tables that are not [b, s, half]");
    if (!t.ok()) return;
    const Sizes of_table = t.shape(table);
    table = t.Reshape(table, {of_table[0], of_table[1], 1, of_table[2]});
  }
  const bool interleaved = t.Int("interleaved", 0) != 0;
  const auto part = [&](ValueId from, int axis, int64_t begin, int64_t size) {
    if (t.ok() && begin == 0 && size == t.shape(from)[axis]) return from;
    return t.Add("slice", {from}, {{"axis", int64_t{axis}}, {"begin", begin}, {"size", size}});
  };
  ValueId pairs = part(x, 3, 0, turned);
  const int64_t half = turned / 2;
  pairs = interleaved ? t.Reshape(pairs, {s[0], s[1], s[2], half, 2}) : pairs;
  const auto side = [&](int64_t i) {
    return interleaved ? t.Reshape(part(pairs, 4, i, 1), {s[0], s[1], s[2], half})
                       : part(pairs, 3, i * half, half);
  };
  const ValueId first = side(0), second = side(1);
  const auto times = [&](ValueId a, int table) { return t.Add("mul", {a, tables[table]}); };
  ValueId new_first = t.Add("sub", {times(first, 0), times(second, 1)});
  ValueId new_second = t.Add("add", {times(first, 1), times(second, 0)});
  ValueId y = -1;
  if (interleaved) {
    const Sizes one = {s[0], s[1], s[2], half, 1};
    y = t.Add("concat", {t.Reshape(new_first, one), t.Reshape(new_second, one)},
              {{"axis", int64_t{4}}});
    y = t.Reshape(y, {s[0], s[1], s[2], turned});
  } else {
    y = t.Add("concat", {new_first, new_second}, {{"axis", int64_t{3}}});
  }
  if (turned < s[3])
    y = t.Add("concat", {y, part(x, 3, turned, s[3] - turned)}, {{"axis", int64_t{3}}});
  t.Result(flat ? t.Reshape(y, given) : t.Permute(y, {0, 2, 1, 3}));
}

}  // namespace

std::vector<Row> ProductRows() {
  return {
      {"MatMul", 1, MatMul},
      {"Gemm", 6, Gemm},
      {"RotaryEmbedding", 23, RotaryEmbedding},
  };
}

}  // namespace weir::onnx
