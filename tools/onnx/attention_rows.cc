// Translations of Attention. What Weir's attention computes becomes that operation; other forms
// (caps of scores, windows, earlier keys, values of another width, inner results) are spelled out.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

using Sizes = std::vector<int64_t>;

constexpr double kHidden = -1e30;  // a score that no sum of others makes visible

// Returns [b, s, heads, d] of operand i of Attention: [b, heads, s, d] or [b, s, heads * d].
ValueId Heads(Translation& t, int i, const char* count) {
  const ValueId x = t.X(i);
  if (!t.ok()) return -1;
  const Sizes s = t.shape(x);
  if (s.size() == 4) return t.Permute(x, {0, 2, 1, 3});
  const int64_t heads = t.Int(count, 0);
  if (s.size() != 3 || heads < 1 || s[2] % heads != 0) {
    t.Fail(absl::StrCat("operand ", i,
                        " that is neither [b, heads, s, d] nor [b, s, heads * d] with ", count));
    return -1;
  }
  return t.Reshape(x, {s[0], s[1], heads, s[2] / heads});
}

// A SpelledAttention spells out one attention. Queries are [b, h, s, d], keys and values
// [b, h, n, ..] with the earlier ones in front.
class SpelledAttention {
 public:
  explicit SpelledAttention(Translation& t) : t_(t) {}

  void Run() {
    flat_ = t_.input(0).shape.size() == 3;
    q_ = ByHead(Heads(t_, 0, "q_num_heads"));
    ValueId k = ByHead(Heads(t_, 1, "kv_num_heads")), v = ByHead(Heads(t_, 2, "kv_num_heads"));
    if (!t_.ok()) return;
    if (t_.Has(4) != t_.Has(5)) return t_.Fail("earlier keys without values, or the reverse");
    if (t_.Has(4)) {
      earlier_ = t_.input(4).shape.size() == 4 ? t_.input(4).shape[2] : 0;
      k = t_.Add("concat", {t_.X(4), k}, {{"axis", int64_t{2}}});
      v = t_.Add("concat", {t_.X(5), v}, {{"axis", int64_t{2}}});
    }
    if (!t_.ok()) return;
    const std::vector<ValueId> present = {-1, k, v};
    batch_ = t_.shape(q_)[0];
    heads_ = t_.shape(q_)[1];
    queries_ = t_.shape(q_)[2];
    keys_ = t_.shape(k)[2];
    if (queries_ > kFoldedElementsMax / keys_) return t_.Fail("scores of too many positions");
    SeeByPosition();
    SeeByLength();
    SeeByMask();
    ValueId scores =
        t_.Scaled(t_.Add("batched_matmul", {q_, Repeated(k)}, {{"transpose_b", true}}), Scale());
    inner_[0] = scores;
    if (const double cap = t_.Real("softcap", 0); cap != 0)
      scores = t_.Scaled(t_.Add("tanh", {t_.Scaled(scores, 1 / cap)}), cap);
    inner_[1] = scores;
    if (added_ >= 0) scores = t_.Add("add", {scores, added_});
    inner_[2] = scores;
    ValueId shares = scores;
    if (seen_ >= 0) shares = t_.Add("where", {seen_, shares}, {{"value", kHidden}});
    shares = t_.Add("softmax", {shares});
    if (seen_ >= 0) shares = t_.Add("where", {seen_, shares}, {{"value", 0.0}});
    inner_[3] = shares;
    const ValueId y = t_.Add("batched_matmul", {shares, Repeated(v)});
    if (!t_.ok()) return;
    if (flat_) {
      t_.Result(
          t_.Reshape(t_.Permute(y, {0, 2, 1, 3}), {batch_, queries_, heads_ * t_.shape(y)[3]}));
    } else {
      t_.Result(y);
    }
    for (int i : {1, 2}) {
      if (t_.node().output_size() > i) t_.Result(i, present[i]);
    }
    if (t_.node().output_size() > 3) Inner();
  }

 private:
  ValueId ByHead(ValueId x) { return t_.Permute(x, {0, 2, 1, 3}); }

  double Scale() const {
    const double scale = t_.Real("scale", 0);
    return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(t_.shape(q_)[3]));
  }

  // Each head of keys serves the heads of queries that follow one another.
  ValueId Repeated(ValueId x) {
    if (!t_.ok()) return -1;
    const Sizes s = t_.shape(x);
    if (s[1] == heads_) return x;
    if (heads_ % s[1] != 0) t_.Fail("heads of queries that are no multiple of those of keys");
    if (!t_.ok()) return -1;
    const ValueId wide = t_.Expand(t_.Reshape(x, {s[0], s[1], 1, s[2], s[3]}),
                                   {s[0], s[1], heads_ / s[1], s[2], s[3]});
    return t_.Reshape(wide, {s[0], heads_, s[2], s[3]});
  }

  void See(ValueId truths) { seen_ = seen_ < 0 ? truths : t_.Add("logical_and", {seen_, truths}); }

  // Returns truths about [1, 1, queries or 1, keys].
  ValueId Truths(std::vector<float> values, int64_t rows) {
    return t_.Add("cast", {t_.Constant(std::move(values), {1, 1, rows, keys_})},
                  {{"to", std::string("bool")}});
  }

  bool causal() const { return t_.Int("is_causal", 0) != 0; }
  int64_t left() const { return t_.Int("left_window_size", -1); }
  int64_t right() const { return t_.Int("right_window_size", -1); }
  // Returns whether a query that stands `ahead` keys behind the key may see the key.
  bool MaySee(int64_t ahead) const {
    return !(causal() && ahead > 0) && !(left() >= 0 && -ahead > left()) &&
           !(right() >= 0 && ahead > right());
  }
  bool ByPosition() const { return causal() || left() >= 0 || right() >= 0; }

  // Query i stands at place `earlier_` + i of the keys, unless lengths say where the keys end.
  void SeeByPosition() {
    if (!ByPosition() || t_.Has(6)) return;
    std::vector<float> seen;
    for (int64_t query = 0; query < queries_; ++query) {
      for (int64_t key = 0; key < keys_; ++key)
        seen.push_back(MaySee(key - query - earlier_) ? 1.0f : 0.0f);
    }
    See(Truths(std::move(seen), queries_));
  }

  // Operand 6 says for each sample how many keys there are. The last query stands at the last.
  void SeeByLength() {
    if (!t_.Has(6)) return;
    const ValueId lengths =
        t_.Reshape(t_.Add("cast", {t_.Any(6)}, {{"to", std::string("f32")}}), {batch_, 1, 1, 1});
    std::vector<float> places;
    for (int64_t key = 0; key < keys_; ++key) places.push_back(static_cast<float>(key));
    See(t_.Add("less", {t_.Constant(places, {1, 1, 1, keys_}), lengths}));
    if (!ByPosition()) return;
    // key - (query + length - queries), as far as it is known
    std::vector<float> ahead;
    for (int64_t query = 0; query < queries_; ++query) {
      for (int64_t key = 0; key < keys_; ++key)
        ahead.push_back(static_cast<float>(key - query + queries_));
    }
    const ValueId known = t_.Constant(ahead, {1, 1, queries_, keys_});
    const auto bounded = [&](const char* relation, int64_t bound) {
      See(t_.Add(relation,
                 {known, bound == 0 ? lengths : t_.Plus(lengths, static_cast<double>(bound))}));
    };
    if (causal()) bounded("less_equal", 0);
    if (left() >= 0) bounded("greater_equal", -left());
    if (right() >= 0) bounded("less_equal", right());
  }

  // A mask [.., queries, keys] may lack its last keys, which are hidden then.
  void SeeByMask() {
    if (!t_.Has(3)) return;
    ValueId mask = t_.Any(3);
    if (!t_.ok()) return;
    Sizes shape = t_.shape(mask);
    if (shape.empty() || shape.size() > 4) return t_.Fail("a mask that is not [.., queries, keys]");
    shape.insert(shape.begin(), 4 - shape.size(), 1);
    mask = t_.Reshape(mask, shape);
    const bool is_added = IsReal(t_.input(3).element);
    const int64_t lacking = keys_ - shape[3];
    if (lacking > 0 && shape[3] != 1) {
      Sizes rest = shape;
      rest[3] = lacking;
      const int64_t count = Count(rest);
      if (count < 1 || count > kFoldedElementsMax) return t_.Fail("a mask of too many elements");
      ValueId hidden = t_.Constant(
          std::vector<float>(count, is_added ? -std::numeric_limits<float>::infinity() : 0.0f),
          rest);
      if (!is_added) hidden = t_.Add("cast", {hidden}, {{"to", std::string("bool")}});
      mask = t_.Add("concat", {mask, hidden}, {{"axis", int64_t{3}}});
    }
    if (!is_added) return See(mask);
    added_ = mask;
    See(t_.Add("greater", {mask},
               {{"value", -static_cast<double>(std::numeric_limits<float>::max())}}));
  }

  // Result 3 shows the scores before or after the cap, with the mask, or the shares.
  void Inner() {
    const int64_t mode = t_.Int("qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3) return t_.Fail("qk_matmul_output_mode");
    ValueId shown = inner_[mode];
    if (mode == 2 && seen_ >= 0) {
      const ValueId hidden = t_.Constant({-std::numeric_limits<float>::infinity()}, {1, 1, 1, 1});
      shown = t_.Add("where", {seen_, shown, hidden});
    }
    t_.Result(3, shown);
  }

  Translation& t_;
  bool flat_ = false;
  ValueId q_ = -1;
  int64_t batch_ = 0, heads_ = 0, queries_ = 0, keys_ = 0, earlier_ = 0;
  ValueId seen_ = -1;   // truths that repeat to the scores
  ValueId added_ = -1;  // to the scores
  ValueId inner_[4] = {-1, -1, -1, -1};
};

// Weir's attention has one width of heads, as many keys as queries if it is causal, and no cap.
bool IsPlain(Translation& t, ValueId q, ValueId k, ValueId v) {
  for (int i : {4, 5, 6}) {
    if (t.Has(i)) return false;
  }
  const bool causal = t.Int("is_causal", 0) != 0;
  const bool masked = t.Has(3) && t.ok() &&
                      (t.input(3).shape.size() < 2 || t.input(3).shape.size() > 4 ||
                       t.input(3).shape.back() != t.shape(k)[1]);
  return t.Real("softcap", 0) == 0 && t.Int("left_window_size", -1) < 0 &&
         t.Int("right_window_size", -1) < 0 && t.node().output_size() <= 1 &&
         t.shape(v)[3] == t.shape(q)[3] && !(causal && t.shape(q)[1] != t.shape(k)[1]) && !masked;
}

// The mask is [.., queries, keys]: truths, or numbers that are added.
void Attention(Translation& t) {
  const ValueId q = Heads(t, 0, "q_num_heads"), k = Heads(t, 1, "kv_num_heads"),
                v = Heads(t, 2, "kv_num_heads");
  if (!t.ok()) return;
  if (!IsPlain(t, q, k, v)) return SpelledAttention(t).Run();
  const bool causal = t.Int("is_causal", 0) != 0;
  const Sizes out = t.shape(q);
  std::vector<ValueId> operands = {q, k, v};
  if (t.Has(3)) {
    const ValueId mask = t.Any(3);
    if (!t.ok()) return;
    Sizes shape = t.shape(mask);
    shape.insert(shape.begin(), 4 - shape.size(), 1);
    operands.push_back(t.Reshape(mask, shape));
  }
  const ValueId y =
      t.Add("attention", operands, {{"causal", causal}, {"scale", t.Real("scale", 0)}});
  if (t.input(0).shape.size() == 4) return t.Result(t.Permute(y, {0, 2, 1, 3}));
  t.Result(t.Reshape(y, {out[0], out[1], out[2] * out[3]}));
}

}  // namespace

std::vector<Row> AttentionRows() { return {{"Attention", 23, Attention}}; }

}  // namespace weir::onnx
