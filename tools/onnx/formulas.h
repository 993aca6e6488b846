// Reads formulas backwards from their results: what several operations compute together.
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "tools/onnx/weir_graph.h"

namespace weir::onnx {

struct NormFormula {
  ValueId x = -1, gamma = -1, beta = -1;
  double epsilon = 0;
};

struct AttentionFormula {
  ValueId q = -1, k = -1, v = -1;  // [b, heads, s, d]
  ValueId mask = -1;  // added to the scores, or the truth of what is seen; at most 4 dimensions
  double scale = 1;
  bool causal = false;
};

class Formulas {
 public:
  explicit Formulas(const WeirGraph& graph) : graph_(graph) {}

  // Returns the number that `value` is, if it is a constant of one element.
  std::optional<double> Number(ValueId value) const;

  // Each takes a node that is not in the graph yet, as its operation and the new values of its
  // inputs, and returns x if the node computes the function of x, else -1.
  ValueId GeluErf(const GraphNode& node, const std::vector<ValueId>& in) const;
  ValueId GeluTanh(const GraphNode& node, const std::vector<ValueId>& in) const;

  // Each takes the operands of the last operation: gamma and the normalised x; beta and their
  // product; the probabilities and v.
  std::optional<NormFormula> RmsNorm(const std::vector<ValueId>& in) const;
  std::optional<NormFormula> LayerNorm(const std::vector<ValueId>& in) const;
  // A constant mask that hides nothing, or exactly the later positions, is part of the formula.
  std::optional<AttentionFormula> Attention(const std::vector<ValueId>& in) const;

 private:
  // A Scaled says of a value that it is factor * x. A value that is not scaled is its own x.
  struct Scaled {
    ValueId x;
    double factor;
  };
  Scaled Unscaled(ValueId value) const;
  // A ScaledProduct is factor * factors[0] * factors[1].
  struct ScaledProduct {
    double factor;
    std::vector<ValueId> factors;
  };
  // Returns what a node multiplies, or nothing if the node scales something that is no product.
  // Precondition: the node's operation is `mul` or `scale`.
  std::optional<ScaledProduct> ProductOf(const GraphNode& node,
                                         const std::vector<ValueId>& in) const;
  // Returns x if `value` is x plus the number, else -1.
  ValueId Minus(ValueId value, double addend) const;
  struct Shifted {
    ValueId x = -1;
    double addend = 0;
  };
  Shifted Shift(ValueId value) const;
  // Returns x if `value` is the mean of x over its last dimension, kept with size 1.
  ValueId MeanOfLast(ValueId value) const;
  // Returns {y, epsilon} if `value` is y / sqrt(mean of y^2 over the last dimension + epsilon).
  Shifted OverRootMeanSquare(ValueId value) const;
  Shifted RootMeanSquare(ValueId value) const;
  // Returns x if `value` is x times a constant that is 1 wherever `mask` hides nothing, else the
  // value.
  ValueId WithoutHidden(ValueId value, const Tensor& mask) const;

  const WeirGraph& graph_;
};

}  // namespace weir::onnx
