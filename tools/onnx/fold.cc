// Computes nodes whose operands are all known: shapes, masks, tables of positions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/onnx/shapes.h"
#include "tools/onnx/translation.h"

namespace weir::onnx {
namespace {

// Returns a tensor of zeros; fails if it would be too large.
Tensor Zeros(Translation& t, Element element, std::vector<int64_t> shape) {
  Tensor out{element, std::move(shape), {}, {}};
  const int64_t count = Count(out.shape);
  if (count < 0 || count > kFoldedElementsMax) {
    t.Fail(absl::StrCat("a constant of ", count < 0 ? "too many" : absl::StrCat(count),
                        " elements; at most ", kFoldedElementsMax));
    return out;
  }
  if (out.is_real())
    out.reals.resize(count);
  else
    out.integers.resize(count);
  return out;
}

void Set(Tensor& tensor, int64_t i, double value) {
  if (tensor.is_real())
    tensor.reals[i] = static_cast<float>(value);
  else
    tensor.integers[i] = static_cast<int64_t>(value);
}

void Copy(const Tensor& from, int64_t i, Tensor& to, int64_t j) {
  if (to.is_real())
    to.reals[j] = from.reals[i];
  else
    to.integers[j] = from.integers[i];
}

double FloorModulo(double a, double b) { return a - std::floor(a / b) * b; }

int64_t Divided(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a / b;
}

// Integer sums wrap around, as in every implementation.
int64_t Wrapped(char op, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == '+' ? x + y : op == '-' ? x - y : x * y);
}

// Returns an integer as its type holds it: the higher bits are lost.
int64_t Narrowed(Element element, int64_t value) {
  switch (element) {
    case Element::kU8: return static_cast<uint8_t>(value);
    case Element::kI8: return static_cast<int8_t>(value);
    case Element::kU16: return static_cast<uint16_t>(value);
    case Element::kI16: return static_cast<int16_t>(value);
    case Element::kU32: return static_cast<uint32_t>(value);
    case Element::kI32: return static_cast<int32_t>(value);
    default: return value;
  }
}

// A shift by as many bits as the type has, or more, leaves nothing but the sign. So does a shift by
// a negative number, which ONNX leaves open.
int64_t ShiftedLeft(int64_t a, int64_t bits) {
  return bits < 0 || bits > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << bits);
}
int64_t ShiftedRight(int64_t a, int64_t bits) { return a >> (bits < 0 || bits > 63 ? 63 : bits); }
int64_t UnsignedShiftedRight(int64_t a, int64_t bits) {
  return bits < 0 || bits > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> bits);
}

using RealFunction = double (*)(double, double);
using IntegerFunction = int64_t (*)(int64_t, int64_t);

struct BinaryFunction {
  RealFunction real;
  IntegerFunction integer;
  bool truth;  // the result is a truth value
};

// The remainder with the sign of the dividend.
constexpr BinaryFunction kFmod = {
    [](double a, double b) { return std::fmod(a, b); },
    [](int64_t a, int64_t b) -> int64_t { return b == 0 || b == -1 ? 0 : a % b; }, false};

constexpr BinaryFunction kShiftLeft = {nullptr, ShiftedLeft, false};
constexpr BinaryFunction kShiftRight = {nullptr, ShiftedRight, false};
constexpr BinaryFunction kUnsignedShiftRight = {nullptr, UnsignedShiftedRight, false};

const BinaryFunction* FindBinary(const std::string& op) {
  static const auto* functions = new std::map<std::string, BinaryFunction>{
      {"Add",
       {[](double a, double b) { return a + b; },
        [](int64_t a, int64_t b) { return Wrapped('+', a, b); }, false}},
      {"Sub",
       {[](double a, double b) { return a - b; },
        [](int64_t a, int64_t b) { return Wrapped('-', a, b); }, false}},
      {"Mul",
       {[](double a, double b) { return a * b; },
        [](int64_t a, int64_t b) { return Wrapped('*', a, b); }, false}},
      {"Div", {[](double a, double b) { return a / b; }, Divided, false}},
      {"Mod",
       {FloorModulo,
        [](int64_t a, int64_t b) -> int64_t {
          if (b == 0 || b == -1) return 0;
          const int64_t rest = a % b;
          return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
        },
        false}},
      {"Pow",
       {[](double a, double b) { return std::pow(a, b); },
        [](int64_t a, int64_t b) {
          return static_cast<int64_t>(
              std::clamp(std::pow(static_cast<double>(a), static_cast<double>(b)), -9e18, 9e18));
        },
        false}},
      {"Min",
       {[](double a, double b) { return std::min(a, b); },
        [](int64_t a, int64_t b) { return std::min(a, b); }, false}},
      {"Max",
       {[](double a, double b) { return std::max(a, b); },
        [](int64_t a, int64_t b) { return std::max(a, b); }, false}},
      {"Equal",
       {[](double a, double b) -> double { return a == b; },
        [](int64_t a, int64_t b) -> int64_t { return a == b; }, true}},
      {"Less",
       {[](double a, double b) -> double { return a < b; },
        [](int64_t a, int64_t b) -> int64_t { return a < b; }, true}},
      {"LessOrEqual",
       {[](double a, double b) -> double { return a <= b; },
        [](int64_t a, int64_t b) -> int64_t { return a <= b; }, true}},
      {"Greater",
       {[](double a, double b) -> double { return a > b; },
        [](int64_t a, int64_t b) -> int64_t { return a > b; }, true}},
      {"GreaterOrEqual",
       {[](double a, double b) -> double { return a >= b; },
        [](int64_t a, int64_t b) -> int64_t { return a >= b; }, true}},
      {"BitwiseAnd", {nullptr, [](int64_t a, int64_t b) { return a & b; }, false}},
      {"BitwiseOr", {nullptr, [](int64_t a, int64_t b) { return a | b; }, false}},
      {"BitwiseXor", {nullptr, [](int64_t a, int64_t b) { return a ^ b; }, false}},
      {"And", {nullptr, [](int64_t a, int64_t b) -> int64_t { return a != 0 && b != 0; }, true}},
      {"Or", {nullptr, [](int64_t a, int64_t b) -> int64_t { return a != 0 || b != 0; }, true}},
      {"Xor",
       {nullptr, [](int64_t a, int64_t b) -> int64_t { return (a != 0) != (b != 0); }, true}},
  };
  const auto found = functions->find(op);
  return found == functions->end() ? nullptr : &found->second;
}

// Folds a function of two tensors, or of several from left to right.
void FoldBinary(Translation& t, const BinaryFunction& function) {
  const Tensor* first = t.Known(0);
  if (!t.ok()) return;
  Tensor total = *first;
  for (int k = 1; k < t.num_inputs(); ++k) {
    const Tensor* b = t.Known(k);
    if (!t.ok()) return;
    const Tensor a = std::move(total);
    if (a.is_real() != b->is_real() || (a.is_real() && function.real == nullptr))
      return t.Fail("operands of different types");
    const std::vector<int64_t> shape = Broadcast(t, a.shape, b->shape);
    total = Zeros(t, function.truth ? Element::kBool : a.element, shape);
    if (!t.ok()) return;
    const BroadcastIndex at_a(a.shape, shape), at_b(b->shape, shape);
    for (const Tensor* operand : {&a, b}) {
      if (operand->element != Element::kU64 || absl::StartsWith(t.node().op(), "Bit")) continue;
      for (int64_t value : operand->integers) {
        if (value < 0) return t.Fail("arithmetic on u64 from 2^63 on");
      }
    }
    for (int64_t i = 0; i < total.size(); ++i) {
      if (a.is_real())
        Set(total, i, function.real(a.reals[at_a(i)], b->reals[at_b(i)]));
      else
        total.integers[i] =
            Narrowed(total.element, function.integer(a.integers[at_a(i)], b->integers[at_b(i)]));
    }
  }
  t.ResultConstant(0, std::move(total));
}

using UnaryFunction = double (*)(double);
UnaryFunction FindUnary(const std::string& op) {
  static const auto* functions = new std::map<std::string, UnaryFunction>{
      {"Neg", [](double x) { return -x; }},
      {"Abs", [](double x) { return std::abs(x); }},
      {"Sqrt", [](double x) { return std::sqrt(x); }},
      {"Reciprocal", [](double x) { return 1 / x; }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Round", [](double x) { return std::nearbyint(x); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Log", [](double x) { return std::log(x); }},
      {"Sin", [](double x) { return std::sin(x); }},
      {"Cos", [](double x) { return std::cos(x); }},
      {"Tanh", [](double x) { return std::tanh(x); }},
      {"Erf", [](double x) { return std::erf(x); }},
      {"Sign", [](double x) -> double { return x > 0   ? 1
                                               : x < 0 ? -1
                                                       : x; }},
      {"Not", [](double x) -> double { return x == 0; }},
  };
  const auto found = functions->find(op);
  return found == functions->end() ? nullptr : found->second;
}

void FoldUnary(Translation& t, UnaryFunction function) {
  const Tensor* x = t.Known(0);
  if (!t.ok()) return;
  Tensor y = Zeros(t, x->element, x->shape);
  for (int64_t i = 0; t.ok() && i < y.size(); ++i) Set(y, i, function(x->number(i)));
  t.ResultConstant(0, std::move(y));
}

void FoldBitwiseNot(Translation& t) {
  const Tensor* x = t.Known(0);
  if (!t.ok()) return;
  if (x->is_real()) return t.Fail("the bits of real numbers");
  Tensor y = *x;
  for (int64_t& value : y.integers) value = Narrowed(y.element, ~value);
  t.ResultConstant(0, std::move(y));
}

void FoldTruths(Translation& t, bool (*function)(double)) {
  const Tensor* x = t.Known(0);
  if (!t.ok()) return;
  Tensor y = Zeros(t, Element::kBool, x->shape);
  for (int64_t i = 0; t.ok() && i < y.size(); ++i) y.integers[i] = function(x->number(i)) ? 1 : 0;
  t.ResultConstant(0, std::move(y));
}

// ---- shapes of tensors

void FoldConstant(Translation& t) {
  const proto::OnnxNode& node = t.node();
  if (const proto::OnnxAttribute* value = t.Attr("value")) {
    auto tensor = Decode(value->t(), {}, kFoldedElementsMax, "constant");
    if (!tensor.ok()) return t.Fail(std::string(tensor.status().message()));
    return t.ResultConstant(0, *std::move(tensor));
  }
  if (t.HasAttr("value_int")) {
    Tensor number = MakeIntegers({t.Int("value_int", 0)});
    number.shape.clear();
    return t.ResultConstant(0, std::move(number));
  }
  if (t.HasAttr("value_ints")) return t.ResultConstant(0, MakeIntegers(t.Ints("value_ints")));
  if (t.HasAttr("value_float"))
    return t.ResultConstant(0, MakeReals({static_cast<float>(t.Real("value_float", 0))}, {}));
  if (const proto::OnnxAttribute* floats = t.Attr("value_floats")) {
    return t.ResultConstant(
        0, MakeReals({floats->floats().begin(), floats->floats().end()}, {floats->floats_size()}));
  }
  t.Fail(absl::StrCat("a constant in attribute ",
                      node.attribute_size() > 0 ? node.attribute(0).name() : "none"));
}

void FoldConstantOfShape(Translation& t) {
  const std::vector<int64_t> shape = t.KnownInts(0);
  Tensor value = MakeReals({0.0f}, {1});
  if (const proto::OnnxAttribute* attribute = t.Attr("value")) {
    auto decoded = Decode(attribute->t(), {}, 1, "value");
    if (!decoded.ok()) return t.Fail(std::string(decoded.status().message()));
    if (decoded->size() != 1) return t.Fail("a value that is not one number");
    value = *std::move(decoded);
  }
  if (!t.ok()) return;
  Tensor out = Zeros(t, value.element, shape);
  for (int64_t i = 0; t.ok() && i < out.size(); ++i) Copy(value, 0, out, i);
  t.ResultConstant(0, std::move(out));
}

void FoldRange(Translation& t) {
  const Tensor *start = t.Known(0), *limit = t.Known(1), *delta = t.Known(2);
  if (!t.ok()) return;
  if (start->size() != 1 || limit->size() != 1 || delta->size() != 1 || delta->number(0) == 0)
    return t.Fail("a start, a limit and a step that are not one number each, the step not 0");
  const double steps = std::ceil((limit->number(0) - start->number(0)) / delta->number(0));
  if (!(steps <= static_cast<double>(kFoldedElementsMax)))
    return t.Fail("a range of too many numbers");
  const auto count = static_cast<int64_t>(std::max(0.0, steps));
  Tensor out = Zeros(t, start->element, {count});
  for (int64_t i = 0; i < count; ++i)
    Set(out, i, start->number(0) + static_cast<double>(i) * delta->number(0));
  t.ResultConstant(0, std::move(out));
}

// Places the elements of operand 0 under another shape.
void FoldReshaped(Translation& t, const std::vector<int64_t>& shape) {
  const Tensor* x = t.Known(0);
  if (!t.ok()) return;
  Tensor y = *x;
  if (Count(shape) != x->size()) return t.Fail("a reshape to another number of elements");
  y.shape = shape;
  t.ResultConstant(0, std::move(y));
}

// Fills a tensor of `shape` with elements of operand 0 whose places `source` gives.
template <typename Source>
void FoldGathered(Translation& t, const std::vector<int64_t>& shape, const Source& source) {
  const Tensor* x = t.Known(0);
  if (!t.ok()) return;
  Tensor y = Zeros(t, x->element, shape);
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t i = 0; t.ok() && i < y.size(); ++i) {
    Copy(*x, source(at), y, i);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  t.ResultConstant(0, std::move(y));
}

void FoldGather(Translation& t) {
  const Tensor* x = t.Known(0);
  const std::vector<int64_t> indices = t.KnownInts(1);
  if (!t.ok()) return;
  const int axis = t.Axis(t.Int("axis", 0), static_cast<int>(x->shape.size()));
  if (!t.ok()) return;
  const std::vector<int64_t> of_indices = t.input(1).shape;
  std::vector<int64_t> shape(x->shape.begin(), x->shape.begin() + axis);
  shape.insert(shape.end(), of_indices.begin(), of_indices.end());
  shape.insert(shape.end(), x->shape.begin() + axis + 1, x->shape.end());
  for (int64_t index : indices) {
    if (index < -x->shape[axis] || index >= x->shape[axis])
      return t.Fail(absl::StrCat("index ", index));
  }
  const std::vector<int64_t> strides = Strides(x->shape), index_strides = Strides(of_indices);
  FoldGathered(t, shape, [&](const std::vector<int64_t>& at) {
    int64_t place = 0, index = 0;
    for (int d = 0; d < axis; ++d) place += at[d] * strides[d];
    for (size_t d = 0; d < of_indices.size(); ++d) index += at[axis + d] * index_strides[d];
    index = indices[index] < 0 ? indices[index] + x->shape[axis] : indices[index];
    place += index * strides[axis];
    for (size_t d = axis + of_indices.size(); d < at.size(); ++d)
      place += at[d] * strides[d - of_indices.size() + 1];
    return place;
  });
}

void FoldTranspose(Translation& t) {
  const Tensor* x = t.Known(0);
  if (!t.ok()) return;
  const std::vector<int64_t> perm = PermutationOf(t, static_cast<int>(x->shape.size()));
  if (!t.ok()) return;
  std::vector<int64_t> shape;
  for (int64_t axis : perm) shape.push_back(x->shape[axis]);
  const std::vector<int64_t> strides = Strides(x->shape);
  FoldGathered(t, shape, [&](const std::vector<int64_t>& at) {
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) place += at[d] * strides[perm[d]];
    return place;
  });
}

void FoldSlice(Translation& t) {
  const Tensor* x = t.Known(0);
  if (!t.ok()) return;
  const std::vector<std::vector<int64_t>> taken = SliceIndices(t, x->shape);
  if (!t.ok()) return;
  std::vector<int64_t> shape;
  for (const auto& of_axis : taken) shape.push_back(static_cast<int64_t>(of_axis.size()));
  const std::vector<int64_t> strides = Strides(x->shape);
  FoldGathered(t, shape, [&](const std::vector<int64_t>& at) {
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) place += taken[d][at[d]] * strides[d];
    return place;
  });
}

void FoldExpand(Translation& t) {
  const Tensor* x = t.Known(0);
  const std::vector<int64_t> to = t.KnownInts(1);
  if (!t.ok()) return;
  const std::vector<int64_t> shape = Broadcast(t, x->shape, to);
  if (!t.ok()) return;
  const std::vector<int64_t> strides = Strides(x->shape);
  const size_t lacking = shape.size() - x->shape.size();
  FoldGathered(t, shape, [&](const std::vector<int64_t>& at) {
    int64_t place = 0;
    for (size_t d = lacking; d < at.size(); ++d)
      place += x->shape[d - lacking] == 1 ? 0 : at[d] * strides[d - lacking];
    return place;
  });
}

void FoldTile(Translation& t) {
  const Tensor* x = t.Known(0);
  const std::vector<int64_t> repeats = t.KnownInts(1);
  if (!t.ok()) return;
  if (repeats.size() != x->shape.size()) return t.Fail("one number of repeats per dimension");
  std::vector<int64_t> shape = x->shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (repeats[d] < 0 || (shape[d] > 0 && repeats[d] > kFoldedElementsMax / shape[d]))
      return t.Fail("too many repeats");
    shape[d] *= repeats[d];
  }
  const std::vector<int64_t> strides = Strides(x->shape);
  FoldGathered(t, shape, [&](const std::vector<int64_t>& at) {
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) place += at[d] % x->shape[d] * strides[d];
    return place;
  });
}

void FoldConcat(Translation& t) {
  const Tensor* first = t.Known(0);
  if (!t.ok()) return;
  const int axis = t.Axis(t.Int("axis", 0), static_cast<int>(first->shape.size()));
  std::vector<int64_t> shape = first->shape;
  for (int i = 1; t.ok() && i < t.num_inputs(); ++i) {
    const Tensor* part = t.Known(i);
    if (!t.ok()) return;
    std::vector<int64_t> rest = part->shape, wanted = first->shape;
    if (rest.size() != wanted.size() || part->is_real() != first->is_real())
      return t.Fail("parts of different shapes or types");
    shape[axis] += rest[axis];
    rest[axis] = wanted[axis] = 0;
    if (rest != wanted) return t.Fail("parts of different shapes");
  }
  if (!t.ok()) return;
  Tensor out = Zeros(t, first->element, shape);
  if (!t.ok() || out.size() == 0) return t.ResultConstant(0, std::move(out));
  int64_t outer = 1, inner = 1, place = 0;
  for (int d = 0; d < axis; ++d) outer *= shape[d];
  for (size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  for (int64_t o = 0; o < outer; ++o) {
    for (int i = 0; i < t.num_inputs(); ++i) {
      const Tensor* part = t.Known(i);
      const int64_t run = part->shape[axis] * inner;
      for (int64_t k = 0; k < run; ++k) Copy(*part, o * run + k, out, place++);
    }
  }
  t.ResultConstant(0, std::move(out));
}

void FoldCast(Translation& t, Element element) {
  const Tensor* x = t.Known(0);
  if (!t.ok()) return;
  if (!IsReal(element) && !IsInteger(element) && element != Element::kBool)
    return t.Fail(absl::StrCat("a cast to ", Name(element)));
  Tensor y = Zeros(t, element, x->shape);
  for (int64_t i = 0; t.ok() && i < y.size(); ++i) {
    const double value = x->number(i);
    if (element == Element::kBool)
      y.integers[i] = value != 0 ? 1 : 0;
    else if (!IsReal(element) && x->is_real())
      y.integers[i] =
          std::isfinite(value) ? static_cast<int64_t>(std::clamp(value, -9.2e18, 9.2e18)) : 0;
    else if (!IsReal(element))
      y.integers[i] = x->integers[i];
    else
      y.reals[i] = static_cast<float>(value);
  }
  t.ResultConstant(0, std::move(y));
}

void FoldWhere(Translation& t) {
  const Tensor *condition = t.Known(0), *a = t.Known(1), *b = t.Known(2);
  if (!t.ok()) return;
  if (condition->is_real() || a->is_real() != b->is_real())
    return t.Fail("operands of different types");
  const std::vector<int64_t> shape =
      Broadcast(t, condition->shape, Broadcast(t, a->shape, b->shape));
  if (!t.ok()) return;
  Tensor out = Zeros(t, a->element, shape);
  if (!t.ok()) return;
  const BroadcastIndex at_c(condition->shape, shape), at_a(a->shape, shape), at_b(b->shape, shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    if (condition->integers[at_c(i)] != 0)
      Copy(*a, at_a(i), out, i);
    else
      Copy(*b, at_b(i), out, i);
  }
  t.ResultConstant(0, std::move(out));
}

void FoldTrilu(Translation& t) {
  const Tensor* x = t.Known(0);
  const std::vector<int64_t> k = t.Has(1) ? t.KnownInts(1) : std::vector<int64_t>{0};
  if (!t.ok()) return;
  if (x->shape.size() < 2 || k.size() != 1) return t.Fail("a matrix and one number");
  Tensor y = *x;
  const int64_t rows = x->shape[x->shape.size() - 2], columns = x->shape.back();
  const bool upper = t.Int("upper", 1) != 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t row = i / columns % rows, column = i % columns;
    const bool stays = upper ? column - row >= k[0] : column - row <= k[0];
    if (!stays) Set(y, i, 0);
  }
  t.ResultConstant(0, std::move(y));
}

void FoldReduce(Translation& t, RealFunction function, double first, bool mean) {
  const Tensor* x = t.Known(0);
  if (!t.ok()) return;
  const ReducedAxes axes = AxesOfReduction(t, static_cast<int>(x->shape.size()));
  if (!t.ok()) return;
  if (axes.none) return t.ResultConstant(0, *x);
  std::vector<int64_t> kept = x->shape;
  double count = 1;
  for (int64_t axis : axes.axes) {
    count *= static_cast<double>(kept[axis]);
    kept[axis] = 1;
  }
  Tensor y = Zeros(t, x->element, kept);
  if (!t.ok()) return;
  std::vector<double> totals(y.size(), first);
  const BroadcastIndex place(kept, x->shape);
  for (int64_t i = 0; i < x->size(); ++i)
    totals[place(i)] = function(totals[place(i)], x->number(i));
  for (int64_t i = 0; i < y.size(); ++i)
    Set(y, i, mean ? totals[i] / std::max(count, 1.0) : totals[i]);
  if (!axes.keep) {
    std::vector<int64_t> rest;
    for (size_t d = 0; d < kept.size(); ++d) {
      if (std::count(axes.axes.begin(), axes.axes.end(), static_cast<int64_t>(d)) == 0)
        rest.push_back(kept[d]);
    }
    y.shape = rest;
  }
  t.ResultConstant(0, std::move(y));
}

void FoldCumSum(Translation& t) {
  const Tensor* x = t.Known(0);
  const std::vector<int64_t> wanted = t.KnownInts(1);
  if (!t.ok()) return;
  if (wanted.size() != 1) return t.Fail("one axis");
  const int axis = t.Axis(wanted[0], static_cast<int>(x->shape.size()));
  if (!t.ok()) return;
  const int64_t n = x->shape[axis], stride = Strides(x->shape)[axis];
  const bool reverse = t.Int("reverse", 0) != 0, exclusive = t.Int("exclusive", 0) != 0;
  Tensor y = Zeros(t, x->element, x->shape);
  if (!t.ok()) return;
  for (int64_t i = 0; i < y.size(); ++i) {
    if (i / stride % n != 0) continue;  // not the first element of a line
    double total = 0;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t place = i + (reverse ? n - 1 - k : k) * stride;
      const double value = x->number(place);
      Set(y, place, exclusive ? total : total + value);
      total += value;
    }
  }
  t.ResultConstant(0, std::move(y));
}

bool FoldMovement(Translation& t, const std::string& op) {
  const auto rank = [&] { return static_cast<int>(t.input(0).shape.size()); };
  if (op == "Identity") {
    t.ResultInput(0, 0);
  } else if (op == "Constant") {
    FoldConstant(t);
  } else if (op == "ConstantOfShape") {
    FoldConstantOfShape(t);
  } else if (op == "Range") {
    FoldRange(t);
  } else if (op == "Gather") {
    FoldGather(t);
  } else if (op == "Concat") {
    FoldConcat(t);
  } else if (op == "Transpose") {
    FoldTranspose(t);
  } else if (op == "Slice") {
    FoldSlice(t);
  } else if (op == "Expand") {
    FoldExpand(t);
  } else if (op == "Tile") {
    FoldTile(t);
  } else if (op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Flatten") {
    FoldReshaped(t, ReshapedShape(t, t.input(0).shape));
  } else if (op == "Trilu") {
    FoldTrilu(t);
  } else if (op == "CumSum" && rank() > 0) {
    FoldCumSum(t);
  } else if (op == "Where") {
    FoldWhere(t);
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool Fold(Translation& t) {
  const std::string& op = t.node().op();
  if (op == "Shape" || op == "Size") {
    // The sizes are known even where the elements are not.
    const std::vector<int64_t> shape = t.input(0).shape;
    const auto rank = static_cast<int64_t>(shape.size());
    if (op == "Size") {
      Tensor size = MakeIntegers({Count(shape)});
      size.shape.clear();
      t.ResultConstant(0, std::move(size));
      return true;
    }
    const auto bound = [&](const char* name, int64_t fallback) {
      const int64_t at = t.Int(name, fallback);
      return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    const int64_t begin = bound("start", 0), end = std::max(begin, bound("end", rank));
    t.ResultConstant(0, MakeIntegers({shape.begin() + begin, shape.begin() + end}));
    return true;
  }
  if (op == "CastLike" && t.Has(0) && t.input(0).constant != nullptr) {
    FoldCast(t, t.input(1).element);
    return true;
  }
  for (int i = 0; i < t.num_inputs(); ++i) {
    if (t.Has(i) && t.input(i).constant == nullptr) return false;
  }
  if (FoldMovement(t, op)) return true;
  if (const BinaryFunction* binary = FindBinary(op)) {
    FoldBinary(t, op == "Mod" && t.Int("fmod", 0) != 0 ? kFmod : *binary);
  } else if (const UnaryFunction unary = FindUnary(op)) {
    FoldUnary(t, unary);
  } else if (op == "BitShift") {
    const bool is_unsigned = t.input(0).element == Element::kU64;
    FoldBinary(t, t.Str("direction", "") == "LEFT" ? kShiftLeft
                  : is_unsigned                    ? kUnsignedShiftRight
                                                   : kShiftRight);
  } else if (op == "BitwiseNot") {
    FoldBitwiseNot(t);
  } else if (op == "Cast") {
    const int64_t to = t.Int("to", 0);
    FoldCast(t, to > 0 && to <= 16 ? static_cast<Element>(to) : Element::kUndefined);
  } else if (op == "IsNaN") {
    FoldTruths(t, [](double x) { return std::isnan(x); });
  } else if (op == "ReduceSum") {
    FoldReduce(
        t, [](double a, double b) { return a + b; }, 0, false);
  } else if (op == "ReduceMean") {
    FoldReduce(
        t, [](double a, double b) { return a + b; }, 0, true);
  } else if (op == "ReduceProd") {
    FoldReduce(
        t, [](double a, double b) { return a * b; }, 1, false);
  } else if (op == "ReduceMax") {
    FoldReduce(
        t, [](double a, double b) { return std::max(a, b); },
        -std::numeric_limits<double>::infinity(), false);
  } else if (op == "ReduceMin") {
    FoldReduce(
        t, [](double a, double b) { return std::min(a, b); },
        std::numeric_limits<double>::infinity(), false);
  } else {
    return false;
  }
  return true;
}

}  // namespace weir::onnx
