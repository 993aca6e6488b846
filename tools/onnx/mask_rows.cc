// Translations of comparisons, of operations on truth values, and of choices by them.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tools/onnx/shapes.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

// Compares with the number if operand 1 is a known number, else element by element.
void Compare(Translation& t, const char* relation) {
  const Tensor* number =
      t.Has(1) && t.Has(0) && t.input(1).constant != nullptr ? t.input(1).constant.get() : nullptr;
  if (number != nullptr && number->size() == 1 && number->shape.size() <= t.input(0).shape.size() &&
      number->element != Element::kBool && std::isfinite(number->number(0)))
    return t.Result(t.Add(relation, {t.Any(0)}, {{"value", number->number(0)}}));
  t.Result(t.Add(relation, {t.Any(0), t.Any(1)}));
}

void Equal(Translation& t) { Compare(t, "equal"); }
void Less(Translation& t) { Compare(t, "less"); }
void LessOrEqual(Translation& t) { Compare(t, "less_equal"); }
void Greater(Translation& t) { Compare(t, "greater"); }
void GreaterOrEqual(Translation& t) { Compare(t, "greater_equal"); }

void And(Translation& t) { t.Result(t.Add("logical_and", {t.Any(0), t.Any(1)})); }
void Or(Translation& t) { t.Result(t.Add("logical_or", {t.Any(0), t.Any(1)})); }
void Xor(Translation& t) { t.Result(t.Add("logical_xor", {t.Any(0), t.Any(1)})); }
void Not(Translation& t) { t.Result(t.Add("logical_not", {t.Any(0)})); }

// What is no number is not equal to itself.
void IsNaN(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Add("not_equal", {x, x}));
}

void IsInf(Translation& t) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const bool above = t.Int("detect_positive", 1) != 0, below = t.Int("detect_negative", 1) != 0;
  const ValueId x = t.X(0);
  if (above && below) return t.Result(t.Add("greater", {t.Add("abs", {x})}, {{"value", kLargest}}));
  if (!above && !below) return t.Fail("neither infinity");
  t.Result(t.Add(above ? "greater" : "less", {x}, {{"value", above ? kLargest : -kLargest}}));
}

void ThresholdedRelu(Translation& t) {
  const ValueId x = t.X(0);
  t.Result(t.Add("where", {t.Add("greater", {x}, {{"value", t.Real("alpha", 1)}}), x}));
}

// x + bias below -lambd, x - bias above lambd, and 0 between.
void Shrink(Translation& t) {
  const ValueId x = t.X(0);
  const double bias = t.Real("bias", 0), limit = t.Real("lambd", 0.5);
  const ValueId above =
      t.Add("where", {t.Add("greater", {x}, {{"value", limit}}), t.Plus(x, -bias)});
  t.Result(t.Add("where", {t.Add("less", {x}, {{"value", -limit}}), t.Plus(x, bias), above}));
}

// Selects by a known condition with arithmetic, so that a rewrite can find the masks of attention:
// with a condition c of zeros and ones, a c + b (1 - c). What an infinite number hides needs no
// factor. Returns -1 if this does not apply.
ValueId SelectedByConstant(Translation& t, const std::vector<int64_t>& shape) {
  const Tensor* condition = t.input(0).constant.get();
  const Tensor* numbers[] = {nullptr, t.KnownNumber(1), t.KnownNumber(2)};
  if ((numbers[1] == nullptr) == (numbers[2] == nullptr)) return -1;
  const int hiding = numbers[1] != nullptr ? 1 : 2;
  const float number = numbers[hiding]->reals[0];
  if (std::isnan(number) || t.input(3 - hiding).shape != shape) return -1;
  std::vector<float> added, kept;
  for (int64_t truth : condition->integers) {
    const bool hidden = (truth != 0) == (hiding == 1);
    added.push_back(hidden ? number : 0.0f);
    kept.push_back(hidden ? 0.0f : 1.0f);
  }
  ValueId x = t.X(3 - hiding);
  if (!std::isinf(number)) x = t.Add("mul", {x, t.Constant(std::move(kept), condition->shape)});
  return number == 0 ? x : t.Add("add", {x, t.Constant(std::move(added), condition->shape)});
}

void Where(Translation& t) {
  t.input(0);
  t.input(1);
  t.input(2);
  if (!t.ok()) return;
  const std::vector<int64_t> shape =
      Broadcast(t, t.input(0).shape, Broadcast(t, t.input(1).shape, t.input(2).shape));
  if (!t.ok()) return;
  if (const Tensor* condition = t.input(0).constant.get();
      condition != nullptr && !condition->is_real()) {
    bool any = false, all = true;
    for (int64_t truth : condition->integers) {
      any = any || truth != 0;
      all = all && truth != 0;
    }
    for (int i : {1, 2}) {
      if ((i == 1 ? all : !any) && t.input(i).shape == shape) return t.ResultInput(0, i);
    }
    const ValueId selected = SelectedByConstant(t, shape);
    if (selected >= 0 || !t.ok()) return t.Result(selected);
  }
  const ValueId condition = t.Any(0);
  const auto fits = [&](int i) {
    return Broadcast(t, t.input(0).shape, t.input(3 - i).shape) == shape;
  };
  if (const Tensor* number = t.KnownNumber(2); number != nullptr && fits(2))
    return t.Result(t.Add("where", {condition, t.X(1)}, {{"value", number->number(0)}}));
  if (const Tensor* number = t.KnownNumber(1); number != nullptr && fits(1)) {
    const ValueId otherwise = t.Add("logical_not", {condition});
    return t.Result(t.Add("where", {otherwise, t.X(2)}, {{"value", number->number(0)}}));
  }
  t.Result(t.Add("where", {condition, t.X(1), t.X(2)}));
}

}  // namespace

std::vector<Row> MaskRows() {
  return {
      {"Equal", 7, Equal},
      {"Less", 7, Less},
      {"LessOrEqual", 12, LessOrEqual},
      {"Greater", 7, Greater},
      {"GreaterOrEqual", 12, GreaterOrEqual},
      {"And", 7, And},
      {"Or", 7, Or},
      {"Xor", 7, Xor},
      {"Not", 1, Not},
      {"IsNaN", 9, IsNaN},
      {"IsInf", 10, IsInf},
      {"ThresholdedRelu", 10, ThresholdedRelu},
      {"Shrink", 9, Shrink},
      {"Where", 9, Where},
  };
}

}  // namespace weir::onnx
