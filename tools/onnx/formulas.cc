#include "tools/onnx/formulas.h"

#include <cmath>
#include <utility>

namespace weir::onnx {
namespace {

bool Near(double a, double b) { return std::abs(a - b) <= 1e-5 * std::max(std::abs(b), 1e-30); }

constexpr int kScalesMax = 4;     // one after another in a formula
constexpr double kHidden = -1e4;  // a score of this size and below has the probability 0

enum class Mask : uint8_t { kNothing, kLater, kOther };

// Returns what a mask hides, of scores [.., queries, keys].
Mask KindOf(const Tensor& mask, int64_t queries, int64_t keys) {
  bool nothing = true, later = true;
  if (mask.shape.size() > 4) return Mask::kOther;
  for (float value : mask.reals) nothing = nothing && value == 0;
  if (nothing) return Mask::kNothing;
  const size_t rank = mask.shape.size();
  if (rank < 2 || queries != keys || mask.shape[rank - 1] != keys ||
      mask.shape[rank - 2] != queries)
    return Mask::kOther;
  for (int64_t i = 0; i < mask.size(); ++i) {
    const int64_t query = i / keys % queries, key = i % keys;
    later = later && (key <= query ? mask.reals[i] == 0 : mask.reals[i] <= kHidden);
  }
  return later ? Mask::kLater : Mask::kOther;
}

}  // namespace

std::optional<double> Formulas::Number(ValueId value) const {
  const Tensor* tensor = graph_.ConstantOf(value);
  if (tensor == nullptr || tensor->size() != 1) return std::nullopt;
  return tensor->number(0);
}

Formulas::Scaled Formulas::Unscaled(ValueId value) const {
  Scaled scaled{value, 1};
  for (int i = 0; i < kScalesMax; ++i) {
    const GraphNode* node = graph_.Producer(scaled.x, "scale");
    if (node == nullptr) break;
    scaled.factor *= node->attrs.Real("factor");
    scaled.x = node->inputs[0];
  }
  return scaled;
}

std::optional<Formulas::ScaledProduct> Formulas::ProductOf(const GraphNode& node,
                                                           const std::vector<ValueId>& in) const {
  if (node.op != "scale") return ScaledProduct{1, in};
  const GraphNode* product = graph_.Producer(in[0], "mul");
  if (product == nullptr) return std::nullopt;
  return ScaledProduct{node.attrs.Real("factor"), product->inputs};
}

Formulas::Shifted Formulas::Shift(ValueId value) const {
  if (const GraphNode* node = graph_.Producer(value, "add")) {
    for (int i : {0, 1}) {
      if (const std::optional<double> number = Number(node->inputs[i]))
        return {node->inputs[1 - i], *number};
    }
  }
  return {};
}

ValueId Formulas::Minus(ValueId value, double addend) const {
  const Shifted shifted = Shift(value);
  return shifted.x >= 0 && Near(shifted.addend, addend) ? shifted.x : -1;
}

// x / 2 * (1 + erf(x / sqrt(2))), in any order of the factors.
ValueId Formulas::GeluErf(const GraphNode& node, const std::vector<ValueId>& in) const {
  const std::optional<ScaledProduct> product = ProductOf(node, in);
  if (!product) return -1;
  for (int i : {0, 1}) {
    const Scaled x = Unscaled(product->factors[i]), gate = Unscaled(product->factors[1 - i]);
    const ValueId erf_value = Minus(gate.x, 1);
    const GraphNode* erf = erf_value < 0 ? nullptr : graph_.Producer(erf_value, "erf");
    if (erf == nullptr) continue;
    const Scaled inner = Unscaled(erf->inputs[0]);
    if (inner.x == x.x && Near(inner.factor, std::sqrt(0.5)) &&
        Near(product->factor * x.factor * gate.factor, 0.5))
      return x.x;
  }
  return -1;
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
ValueId Formulas::GeluTanh(const GraphNode& node, const std::vector<ValueId>& in) const {
  const std::optional<ScaledProduct> product = ProductOf(node, in);
  if (!product) return -1;
  for (int i : {0, 1}) {
    const Scaled x = Unscaled(product->factors[i]), gate = Unscaled(product->factors[1 - i]);
    const ValueId tanh_value = Minus(gate.x, 1);
    const GraphNode* tanh = tanh_value < 0 ? nullptr : graph_.Producer(tanh_value, "tanh");
    if (tanh == nullptr || !Near(product->factor * x.factor * gate.factor, 0.5)) continue;
    const Scaled inner = Unscaled(tanh->inputs[0]);
    const GraphNode* sum = graph_.Producer(inner.x, "add");
    if (sum == nullptr || !Near(inner.factor, std::sqrt(2 / M_PI))) continue;
    for (int k : {0, 1}) {
      const Scaled cubic = Unscaled(sum->inputs[1 - k]);
      const GraphNode* power = graph_.Producer(cubic.x, "power");
      if (sum->inputs[k] == x.x && power != nullptr && power->inputs[0] == x.x &&
          power->attrs.Real("exponent") == 3 && Near(cubic.factor, 0.044715))
        return x.x;
    }
  }
  return -1;
}

ValueId Formulas::MeanOfLast(ValueId value) const {
  const GraphNode* reshape = graph_.Producer(value, "reshape");
  const GraphNode* mean =
      reshape == nullptr ? nullptr : graph_.Producer(reshape->inputs[0], "reduce_mean");
  if (mean == nullptr) return -1;
  const ValueId x = mean->inputs[0];
  std::vector<int64_t> kept = graph_.shape(x);
  if (kept.empty()) return -1;
  const std::vector<int64_t> last = {static_cast<int64_t>(kept.size()) - 1};
  kept.back() = 1;
  return mean->attrs.Ints("axes") == last && graph_.shape(value) == kept ? x : -1;
}

Formulas::Shifted Formulas::RootMeanSquare(ValueId value) const {
  const Shifted shifted = Shift(value);
  const ValueId squared = shifted.x < 0 ? -1 : MeanOfLast(shifted.x);
  if (squared < 0 || shifted.addend < 0) return {};
  if (const GraphNode* square = graph_.Producer(squared, "square"))
    return {square->inputs[0], shifted.addend};
  const GraphNode* product = graph_.Producer(squared, "mul");
  if (product != nullptr && product->inputs[0] == product->inputs[1])
    return {product->inputs[0], shifted.addend};
  return {};
}

Formulas::Shifted Formulas::OverRootMeanSquare(ValueId value) const {
  if (const GraphNode* quotient = graph_.Producer(value, "div")) {
    const GraphNode* root = graph_.Producer(quotient->inputs[1], "sqrt");
    const Shifted found = root == nullptr ? Shifted() : RootMeanSquare(root->inputs[0]);
    return found.x == quotient->inputs[0] ? found : Shifted();
  }
  if (const GraphNode* product = graph_.Producer(value, "mul")) {
    for (int i : {0, 1}) {
      const GraphNode* root = graph_.Producer(product->inputs[i], "rsqrt");
      const Shifted found = root == nullptr ? Shifted() : RootMeanSquare(root->inputs[0]);
      if (found.x >= 0 && found.x == product->inputs[1 - i]) return found;
    }
  }
  return {};
}

std::optional<NormFormula> Formulas::RmsNorm(const std::vector<ValueId>& in) const {
  for (int i : {0, 1}) {
    const Shifted found = OverRootMeanSquare(in[i]);
    if (found.x < 0 || graph_.shape(found.x).empty()) continue;
    // What a layer norm has centred stays for the layer norm.
    const GraphNode* centred = graph_.Producer(found.x, "sub");
    if (centred != nullptr && MeanOfLast(centred->inputs[1]) == centred->inputs[0]) continue;
    const std::vector<int64_t> width = {graph_.shape(found.x).back()};
    if (graph_.shape(in[1 - i]) == width) return NormFormula{found.x, in[1 - i], -1, found.addend};
  }
  return std::nullopt;
}

std::optional<NormFormula> Formulas::LayerNorm(const std::vector<ValueId>& in) const {
  for (int i : {0, 1}) {
    const GraphNode* scaled = graph_.Producer(in[i], "mul");
    if (scaled == nullptr) continue;
    for (int k : {0, 1}) {
      const Shifted found = OverRootMeanSquare(scaled->inputs[k]);
      const GraphNode* centred = found.x < 0 ? nullptr : graph_.Producer(found.x, "sub");
      if (centred == nullptr || MeanOfLast(centred->inputs[1]) != centred->inputs[0]) continue;
      const std::vector<int64_t> width = {graph_.shape(found.x).back()};
      const ValueId gamma = scaled->inputs[1 - k], beta = in[1 - i];
      if (graph_.shape(gamma) == width && graph_.shape(beta) == width)
        return NormFormula{centred->inputs[0], gamma, beta, found.addend};
    }
  }
  return std::nullopt;
}

ValueId Formulas::WithoutHidden(ValueId value, const Tensor& mask) const {
  const GraphNode* product = graph_.Producer(value, "mul");
  for (int i : {0, 1}) {
    const Tensor* kept = product == nullptr ? nullptr : graph_.ConstantOf(product->inputs[i]);
    if (kept == nullptr || kept->shape != mask.shape ||
        graph_.shape(product->inputs[1 - i]) != graph_.shape(value))
      continue;
    bool fits = true;
    for (int64_t k = 0; k < mask.size(); ++k)
      fits = fits && (mask.reals[k] <= kHidden || kept->reals[k] == 1);
    if (fits) return product->inputs[1 - i];
  }
  return value;
}

std::optional<AttentionFormula> Formulas::Attention(const std::vector<ValueId>& in) const {
  const GraphNode* softmax = graph_.Producer(in[0], "softmax");
  if (softmax == nullptr || graph_.shape(in[0]).size() != 4) return std::nullopt;
  AttentionFormula found;
  found.v = in[1];
  ValueId scores = softmax->inputs[0];
  const std::vector<int64_t> shape = graph_.shape(scores);
  const auto is_mask = [&](ValueId value) {
    const std::vector<int64_t> of = graph_.shape(value);
    bool fits = of.size() <= 4 && of != shape;
    for (size_t d = 1; fits && d <= of.size(); ++d)
      fits = of[of.size() - d] == 1 || of[of.size() - d] == shape[4 - d];
    return fits;
  };
  if (const GraphNode* masked = graph_.Producer(scores, "add")) {
    for (int i : {0, 1}) {
      const ValueId value = masked->inputs[i], rest = masked->inputs[1 - i];
      if (!is_mask(value) || graph_.shape(rest) != shape) continue;
      const Tensor* mask = graph_.ConstantOf(value);
      const Mask kind = mask == nullptr ? Mask::kOther : KindOf(*mask, shape[2], shape[3]);
      found.causal = kind == Mask::kLater;
      if (kind == Mask::kOther) found.mask = value;
      scores = mask == nullptr ? rest : WithoutHidden(rest, *mask);
      break;
    }
  } else if (const GraphNode* chosen = graph_.Producer(scores, "where")) {
    const bool hides = chosen->inputs.size() == 2 && chosen->attrs.Real("value") <= kHidden;
    if (hides && is_mask(chosen->inputs[0]) && graph_.shape(chosen->inputs[1]) == shape) {
      found.mask = chosen->inputs[0];
      scores = chosen->inputs[1];
    }
  }
  const Scaled scaled = Unscaled(scores);
  found.scale = scaled.factor;
  const GraphNode* product = graph_.Producer(scaled.x, "batched_matmul");
  if (product == nullptr || product->attrs.Bool("transpose_a") ||
      !product->attrs.Bool("transpose_b") || !(found.scale > 0))
    return std::nullopt;
  found.q = product->inputs[0];
  found.k = product->inputs[1];
  if (graph_.shape(found.v) != graph_.shape(found.k)) return std::nullopt;
  return found;
}

}  // namespace weir::onnx
