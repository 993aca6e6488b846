// Translations of operations that compute each element of the result from the elements at its
// place.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

// The translation of an operation that Weir has under another name.
template <const char* op>
void Unary(Translation& t) {
  t.Result(t.Add(op, {t.X(0)}));
}

template <const char* op>
void Binary(Translation& t) {
  t.Result(t.Add(op, {t.X(0), t.X(1)}));
}

// An operation of one operand or more, from left to right.
template <const char* op>
void Several(Translation& t) {
  ValueId total = t.X(0);
  for (int i = 1; i < t.num_inputs(); ++i) total = t.Add(op, {total, t.X(i)});
  if (t.num_inputs() == 1) return t.ResultInput(0, 0);
  t.Result(total);
}

#define WEIR_ONNX_NAME(name) constexpr char k_##name[] = #name
WEIR_ONNX_NAME(abs);
WEIR_ONNX_NAME(add);
WEIR_ONNX_NAME(ceil);
WEIR_ONNX_NAME(cos);
WEIR_ONNX_NAME(erf);
WEIR_ONNX_NAME(exp);
WEIR_ONNX_NAME(floor);
WEIR_ONNX_NAME(log);
WEIR_ONNX_NAME(maximum);
WEIR_ONNX_NAME(minimum);
WEIR_ONNX_NAME(reciprocal);
WEIR_ONNX_NAME(relu);
WEIR_ONNX_NAME(round);
WEIR_ONNX_NAME(sigmoid);
WEIR_ONNX_NAME(sign);
WEIR_ONNX_NAME(sin);
WEIR_ONNX_NAME(softplus);
WEIR_ONNX_NAME(sqrt);
WEIR_ONNX_NAME(sub);
WEIR_ONNX_NAME(tanh);
#undef WEIR_ONNX_NAME

void Neg(Translation& t) { t.Result(t.Scaled(t.X(0), -1)); }

// A product or quotient by one number becomes a scale, which no layout splits.
void Mul(Translation& t) {
  for (int i : {0, 1}) {
    const Tensor* number = t.KnownNumber(i);
    if (number != nullptr && t.Has(1 - i) &&
        t.input(i).shape.size() <= t.input(1 - i).shape.size() && std::isfinite(number->reals[0]))
      return t.Result(t.Add("scale", {t.X(1 - i)}, {{"factor", number->number(0)}}));
  }
  t.Result(t.Add("mul", {t.X(0), t.X(1)}));
}

void Div(Translation& t) {
  const Tensor* number = t.KnownNumber(1);
  const double factor = number == nullptr ? 0 : 1 / number->number(0);
  if (number != nullptr && std::isfinite(factor) &&
      t.input(1).shape.size() <= t.input(0).shape.size())
    return t.Result(t.Add("scale", {t.X(0)}, {{"factor", factor}}));
  t.Result(t.Add("div", {t.X(0), t.X(1)}));
}

void Mean(Translation& t) {
  ValueId total = t.X(0);
  for (int i = 1; i < t.num_inputs(); ++i) total = t.Add("add", {total, t.X(i)});
  if (t.num_inputs() == 1) return t.ResultInput(0, 0);
  t.Result(t.Scaled(total, 1.0 / t.num_inputs()));
}

ValueId IsEqual(Translation& t, ValueId a, ValueId b) {
  return t.Add("cast", {t.Add("equal", {a, b})}, {{"to", std::string("f32")}});
}

// |x|^y = e^(y log|x|), with the sign of x where y is odd. Where x is below 0 and y is no whole
// number, 0 / 0 makes the result NaN. Where y is 0, the result is 1.
ValueId RealPower(Translation& t, ValueId x, ValueId y) {
  const ValueId y_is_zero = t.Add("equal", {y}, {{"value", 0.0}});
  const ValueId one = t.Number(1);
  const ValueId size = t.Add("exp", {t.Add("mul", {y, t.Add("log", {t.Add("abs", {x})})})});
  const ValueId half = t.Scaled(y, 0.5);
  const ValueId whole = IsEqual(t, t.Add("floor", {y}), y),
                even = IsEqual(t, t.Add("floor", {half}), half);
  const ValueId below =
      t.Add("cast", {t.Add("less", {x}, {{"value", 0.0}})}, {{"to", std::string("f32")}});
  // 1 where x is not below 0 or y is even, -1 where y is odd, 0 / 0 where y is no whole number.
  const ValueId sign_of_odd = t.Plus(t.Scaled(even, 2), -1);
  const ValueId sign = t.Add("div", {t.Add("mul", {sign_of_odd, whole}), whole});
  const ValueId is_below = t.Add("greater", {below}, {{"value", 0.0}});
  const ValueId signed_size = t.Add("where", {is_below, t.Add("mul", {size, sign}), size});
  return t.Add("where", {y_is_zero, one, signed_size});
}

void Pow(Translation& t) {
  const ValueId x = t.X(0);
  const Tensor* power = t.Has(1) ? t.input(1).constant.get() : nullptr;
  if (t.ok() &&
      (power == nullptr || power->size() != 1 || power->shape.size() > t.input(0).shape.size()))
    return t.Result(RealPower(t, x, t.X(1)));
  if (!t.ok()) return;
  const double exponent = power->number(0);
  if (exponent == 2) return t.Result(t.Add("square", {x}));
  if (exponent == 1) return t.ResultInput(0, 0);
  if (exponent == 0.5) return t.Result(t.Add("sqrt", {x}));
  if (exponent == -0.5) return t.Result(t.Add("rsqrt", {x}));
  if (exponent == -1) return t.Result(t.Add("reciprocal", {x}));
  t.Result(t.Add("power", {x}, {{"exponent", exponent}}));
}

// The remainder of real numbers has the sign of the dividend: x - y * (x / y without its fraction).
void Mod(Translation& t) {
  if (t.Int("fmod", 0) == 0) return t.Fail("fmod of 0, the remainder of integers");
  const ValueId x = t.X(0), y = t.X(1);
  const ValueId ratio = t.Add("div", {x, y});
  const ValueId whole =
      t.Add("mul", {t.Add("sign", {ratio}), t.Add("floor", {t.Add("abs", {ratio})})});
  t.Result(t.Add("sub", {x, t.Add("mul", {y, whole})}));
}

void Clip(Translation& t) {
  ValueId x = t.X(0);
  constexpr double kLargest = std::numeric_limits<float>::max();
  double bounds[2] = {t.Real("min", -kLargest), t.Real("max", kLargest)};
  bool by_attribute = t.HasAttr("min") || t.HasAttr("max");
  for (int i : {1, 2}) {
    if (!t.Has(i)) continue;
    const Tensor* bound = t.KnownNumber(i);
    if (bound != nullptr && !std::isnan(bound->number(0))) {
      bounds[i - 1] = std::min(std::max(bound->number(0), -kLargest), kLargest);
      by_attribute = true;
    } else {
      x = t.Add(i == 1 ? "maximum" : "minimum", {x, t.X(i)});
    }
  }
  if (by_attribute && bounds[0] > bounds[1]) bounds[0] = bounds[1];
  if (by_attribute) x = t.Add("clamp", {x}, {{"min", bounds[0]}, {"max", bounds[1]}});
  if (x >= 0 && t.num_inputs() == 1 && !by_attribute) return t.ResultInput(0, 0);
  t.Result(x);
}

void LeakyRelu(Translation& t) {
  t.Result(t.Add("leaky_relu", {t.X(0)}, {{"slope", t.Real("alpha", 0.01)}}));
}

ValueId Elu(Translation& t, ValueId x, double alpha) {
  return t.Add("elu", {x}, {{"alpha", alpha}});
}

void EluRow(Translation& t) { t.Result(Elu(t, t.X(0), t.Real("alpha", 1))); }

void Selu(Translation& t) {
  const double alpha = t.Real("alpha", 1.67326319217681884765625),
               gamma = t.Real("gamma", 1.05070102214813232421875);
  t.Result(t.Scaled(Elu(t, t.X(0), alpha), gamma));
}

void Celu(Translation& t) {
  const double alpha = t.Real("alpha", 1);
  if (!(alpha > 0)) return t.Fail("alpha that is not above 0");
  t.Result(t.Scaled(Elu(t, t.Scaled(t.X(0), 1 / alpha), 1), alpha));
}

ValueId HardSigmoid(Translation& t, ValueId x, double alpha, double beta) {
  return t.Add("clamp", {t.Plus(t.Scaled(x, alpha), beta)}, {{"min", 0.0}, {"max", 1.0}});
}

void HardSigmoidRow(Translation& t) {
  t.Result(HardSigmoid(t, t.X(0), t.Real("alpha", 0.2), t.Real("beta", 0.5)));
}

void HardSwish(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Add("mul", {x, HardSigmoid(t, x, 1.0 / 6, 0.5)}));
}

void Softsign(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Add("div", {x, t.Plus(t.Add("abs", {x}), 1)}));
}

void Swish(Translation& t) {
  const ValueId x = t.X(0);
  const double alpha = t.Real("alpha", 1);
  if (alpha == 1) return t.Result(t.Add("silu", {x}));
  t.Result(t.Add("mul", {x, t.Add("sigmoid", {t.Scaled(x, alpha)})}));
}

void Mish(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Add("mul", {x, t.Add("tanh", {t.Add("softplus", {x})})}));
}

void Gelu(Translation& t) {
  const std::string form = t.Str("approximate", "none");
  if (form != "none" && form != "tanh") return t.Fail(absl::StrCat("approximate \"", form, "\""));
  t.Result(t.Add(form == "tanh" ? "gelu" : "gelu_exact", {t.X(0)}));
}

// x above 0, slope * x below: relu(x) - slope * relu(-x).
void PRelu(Translation& t) {
  const ValueId x = t.X(0);
  const ValueId below = t.Add("relu", {t.Scaled(x, -1)});
  ValueId slope = t.X(1);
  if (t.ok() && t.opset() < 7 && t.rank(slope) == 1) {  // a slope per channel, which is dimension 1
    std::vector<int64_t> per_channel(std::max(t.rank(x) - 1, 1), 1);
    per_channel[0] = t.shape(slope)[0];
    slope = t.Reshape(slope, per_channel);
  }
  t.Result(t.Add("sub", {t.Add("relu", {x}), t.Add("mul", {below, slope})}));
}

void Tan(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Add("div", {t.Add("sin", {x}), t.Add("cos", {x})}));
}

void Sinh(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Scaled(t.Add("sub", {t.Add("expm1", {x}), t.Add("expm1", {t.Scaled(x, -1)})}), 0.5));
}

void Cosh(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Scaled(t.Add("add", {t.Add("exp", {x}), t.Add("exp", {t.Scaled(x, -1)})}), 0.5));
}

// atanh(x) = (log1p(x) - log1p(-x)) / 2
void Atanh(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Scaled(t.Add("sub", {t.Add("log1p", {x}), t.Add("log1p", {t.Scaled(x, -1)})}), 0.5));
}

// acosh(x) = log(x + sqrt(x^2 - 1)), for x from 1
void Acosh(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Add("log", {t.Add("add", {x, t.Add("sqrt", {t.Plus(t.Add("square", {x}), -1)})})}));
}

// Casts between real types change nothing: the job's precision decides how Weir computes. Nor do
// casts between integers.
void Cast(Translation& t) {
  const bool like = t.node().op() == "CastLike";
  const int64_t to = like ? static_cast<int64_t>(t.input(1).element) : t.Int("to", 0);
  const Operand& x = t.input(0);
  if (!t.ok()) return;
  const Element element = to > 0 && to <= 16 ? static_cast<Element>(to) : Element::kUndefined;
  const bool real = IsReal(element), integer = element == Element::kI64 || element == Element::kI32;
  if ((real && IsReal(x.element)) || (integer && IsInteger(x.element)) ||
      (element == Element::kBool && x.element == Element::kBool))
    return t.ResultInput(0, 0);
  if (real || integer || element == Element::kBool) {
    const std::string type = real ? "f32" : integer ? "i32" : "bool";
    return t.Result(t.Add("cast", {t.Any(0)}, {{"to", type}}));
  }
  t.Fail(
      absl::StrCat("a cast of values of the model from ", Name(x.element), " to ", Name(element)));
}

void Identity(Translation& t) { t.ResultInput(0, 0); }

// Dropout does nothing in a model that only computes, and its mask then keeps all elements. In a
// file made for training, Weir drops elements by its own numbers, and has no mask.
void Dropout(Translation& t) {
  const Tensor* trains = t.opset() >= 12 && t.Has(2) ? t.Known(2) : nullptr;
  if (!t.ok()) return;
  const Tensor* ratio = t.KnownNumber(1);
  const bool drops = trains != nullptr && trains->size() == 1 && trains->number(0) != 0;
  if (!drops || (ratio != nullptr && ratio->number(0) == 0)) {
    t.ResultInput(0, 0);
    const std::vector<int64_t> shape = t.input(0).shape;
    if (t.node().output_size() > 1 && Count(shape) <= kFoldedElementsMax)
      t.ResultConstant(1, Tensor{Element::kBool, shape, {}, std::vector<int64_t>(Count(shape), 1)});
    return;
  }
  if (t.Has(1) && ratio == nullptr) return t.Fail("a ratio that depends on the inputs");
  t.Result(t.Add("dropout", {t.X(0)}, {{"rate", ratio == nullptr ? 0.5 : ratio->number(0)}}));
}

}  // namespace

std::vector<Row> ElementwiseRows() {
  return {
      {"Abs", 1, Unary<k_abs>},
      {"Ceil", 1, Unary<k_ceil>},
      {"Cos", 1, Unary<k_cos>},
      {"Erf", 1, Unary<k_erf>},
      {"Exp", 1, Unary<k_exp>},
      {"Floor", 1, Unary<k_floor>},
      {"Log", 1, Unary<k_log>},
      {"Reciprocal", 1, Unary<k_reciprocal>},
      {"Relu", 1, Unary<k_relu>},
      {"Round", 1, Unary<k_round>},
      {"Sigmoid", 1, Unary<k_sigmoid>},
      {"Sign", 1, Unary<k_sign>},
      {"Sin", 1, Unary<k_sin>},
      {"Softplus", 1, Unary<k_softplus>},
      {"Sqrt", 1, Unary<k_sqrt>},
      {"Tanh", 1, Unary<k_tanh>},
      {"Neg", 1, Neg},
      {"Add", 7, Binary<k_add>},
      {"Sub", 7, Binary<k_sub>},
      {"Mul", 7, Mul},
      {"Div", 7, Div},
      {"Max", 8, Several<k_maximum>},
      {"Min", 8, Several<k_minimum>},
      {"Sum", 8, Several<k_add>},
      {"Mean", 8, Mean},
      {"Pow", 7, Pow},
      {"Mod", 10, Mod},
      {"Clip", 1, Clip},
      {"LeakyRelu", 1, LeakyRelu},
      {"Elu", 1, EluRow},
      {"Selu", 6, Selu},
      {"Celu", 12, Celu},
      {"HardSigmoid", 6, HardSigmoidRow},
      {"HardSwish", 14, HardSwish},
      {"Softsign", 1, Softsign},
      {"Swish", 24, Swish},
      {"Mish", 18, Mish},
      {"Gelu", 20, Gelu},
      {"PRelu", 1, PRelu},
      {"Tan", 7, Tan},
      {"Sinh", 9, Sinh},
      {"Cosh", 9, Cosh},
      {"Atanh", 9, Atanh},
      {"Acosh", 9, Acosh},
      {"Cast", 6, Cast},
      {"CastLike", 15, Cast},
      {"Identity", 1, Identity},
      {"Dropout", 7, Dropout},
  };
}

}  // namespace weir::onnx
