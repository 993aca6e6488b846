#include "tools/onnx/translation.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir::onnx {
namespace {

constexpr int64_t kExactIntegerMax = 1 << 24;  // of f32
constexpr int64_t kPadMax = 1 << 16;
constexpr size_t kRunsMax = 64;  // of slices that are joined in place of a product

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// A run is a stretch of indices that follow one another.
struct Run {
  int64_t begin = 0, size = 0;
};

std::vector<Run> RunsOf(const std::vector<int64_t>& indices) {
  std::vector<Run> runs;
  for (int64_t index : indices) {
    if (!runs.empty() && runs.back().begin + runs.back().size == index)
      ++runs.back().size;
    else
      runs.push_back({index, 1});
  }
  return runs;
}

std::vector<int64_t> MovedToLast(int rank, int axis) {
  std::vector<int64_t> perm;
  for (int d = 0; d < rank; ++d) {
    if (d != axis) perm.push_back(d);
  }
  perm.push_back(axis);
  return perm;
}

}  // namespace

Translation::Translation(const proto::OnnxNode& node, std::string name, int64_t opset,
                         std::vector<Operand*> inputs, WeirGraph* graph)
    : node_(node),
      name_(std::move(name)),
      opset_(opset),
      inputs_(std::move(inputs)),
      graph_(graph),
      results_(node.output_size()) {
  for (Operand& result : results_) result.failed = true;
}

void Translation::Fail(const std::string& problem) {
  if (ok()) problem_ = problem;
}

const proto::OnnxAttribute* Translation::Attr(const std::string& name) const {
  for (const proto::OnnxAttribute& attribute : node_.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

int64_t Translation::Int(const std::string& name, int64_t fallback) const {
  const proto::OnnxAttribute* attribute = Attr(name);
  return attribute == nullptr ? fallback : attribute->i();
}

double Translation::Real(const std::string& name, double fallback) const {
  const proto::OnnxAttribute* attribute = Attr(name);
  return attribute == nullptr ? fallback : attribute->f();
}

std::string Translation::Str(const std::string& name, const std::string& fallback) const {
  const proto::OnnxAttribute* attribute = Attr(name);
  return attribute == nullptr ? fallback : attribute->s();
}

std::vector<int64_t> Translation::Ints(const std::string& name) const {
  const proto::OnnxAttribute* attribute = Attr(name);
  if (attribute == nullptr) return {};
  return {attribute->ints().begin(), attribute->ints().end()};
}

const Operand& Translation::input(int i) {
  static const Operand* const kNone = new Operand;
  if (Has(i)) return *inputs_[i];
  Fail(absl::StrCat("operand ", i, " is missing"));
  return *kNone;
}

ValueId Translation::Read(int i, bool integers) {
  input(i);
  if (!ok()) return -1;
  Operand& operand = *inputs_[i];
  if (!IsReal(operand.element) && !integers) {
    Fail(absl::StrCat("operand ", i, " has elements of type ", Name(operand.element),
                      ", and Weir computes with real numbers here"));
    return -1;
  }
  if (operand.value >= 0) return operand.value;
  for (int64_t size : operand.shape) {
    if (size < 1) Fail(absl::StrCat("operand ", i, " has no elements"));
  }
  if (!ok()) return -1;
  if (!IsReal(operand.element)) {
    operand.value = CastConstant(*operand.constant);
    return operand.value;
  }
  GraphParameter parameter;
  parameter.trained = operand.weight != nullptr;
  parameter.stored = operand.weight;
  parameter.constant = operand.constant;
  parameter.name =
      operand.weight != nullptr ? operand.weight->name() : absl::StrCat(name_, ".constant");
  operand.value = graph_->AddParameter(std::move(parameter), operand.shape);
  return operand.value;
}

// Integers and truth values of constants are real parameters that are cast.
ValueId Translation::CastConstant(const Tensor& constant) {
  std::vector<float> values;
  for (int64_t value : constant.integers) {
    if (value < -kExactIntegerMax || value > kExactIntegerMax)
      Fail(absl::StrCat("a constant ", value, "; integers of constants are exact up to ",
                        kExactIntegerMax));
    values.push_back(static_cast<float>(value));
  }
  const ValueId real = Constant(std::move(values), constant.shape);
  return Add("cast", {real},
             {{"to", std::string(constant.element == Element::kBool ? "bool" : "i32")}});
}

ValueId Translation::X(int i) { return Read(i, false); }

ValueId Translation::Untrained(int i) {
  const ValueId value = Read(i, false);
  if (value >= 0 && graph_->values[value].parameter >= 0)
    graph_->parameters[graph_->values[value].parameter].trained = false;
  return value;
}

ValueId Translation::Average(int i) { return input(i).weight == nullptr ? -1 : Read(i, false); }

ValueId Translation::Any(int i) { return Read(i, true); }

const Tensor* Translation::Known(int i) {
  const Operand& operand = input(i);
  if (ok() && operand.constant == nullptr) {
    Fail(
        absl::StrCat("operand ", i,
                     " depends on the inputs of the model, and Weir needs its elements at import"));
  }
  return operand.constant.get();
}

std::vector<int64_t> Translation::KnownInts(int i) {
  const Tensor* tensor = Known(i);
  if (!ok()) return {};
  if (tensor->is_real())
    Fail(absl::StrCat("operand ", i, " has real elements where integers belong"));
  return tensor->integers;
}

const Tensor* Translation::KnownNumber(int i) const {
  if (!Has(i) || inputs_[i]->constant == nullptr) return nullptr;
  const Tensor* tensor = inputs_[i]->constant.get();
  return tensor->is_real() && tensor->size() == 1 ? tensor : nullptr;
}

std::vector<int64_t> Translation::shape(ValueId value) const {
  return value < 0 ? std::vector<int64_t>{} : graph_->shape(value);
}

std::vector<ValueId> Translation::AddAll(const std::string& op, std::vector<ValueId> inputs,
                                         Attributes attrs, int num_outputs) {
  std::vector<ValueId> none(num_outputs, -1);
  if (std::any_of(inputs.begin(), inputs.end(), [](ValueId value) { return value < 0; }))
    Fail("an operand is missing");
  if (!ok()) return none;
  auto outputs = graph_->AddNode(name_, op, std::move(inputs), std::move(attrs), num_outputs);
  if (outputs.ok()) return *std::move(outputs);
  Fail(absl::StrCat("operation ", op,
                    " of Weir refuses the operands: ", outputs.status().message()));
  return none;
}

ValueId Translation::Add(const std::string& op, std::vector<ValueId> inputs, Attributes attrs) {
  return AddAll(op, std::move(inputs), std::move(attrs), 1)[0];
}

ValueId Translation::Constant(std::vector<float> values, std::vector<int64_t> shape) {
  if (!ok()) return -1;
  GraphParameter parameter;
  parameter.constant = std::make_shared<const Tensor>(MakeReals(std::move(values), shape));
  parameter.name = absl::StrCat(name_, ".constant");
  return graph_->AddParameter(std::move(parameter), shape);
}

ValueId Translation::Scaled(ValueId x, double factor) {
  return factor == 1 ? x : Add("scale", {x}, {{"factor", factor}});
}

ValueId Translation::Plus(ValueId x, double addend) { return Add("add", {x, Number(addend)}); }

ValueId Translation::Reshape(ValueId x, std::vector<int64_t> to) {
  if (!ok() || shape(x) == to) return x;
  const int64_t count = Count(to);
  if (count < 1 || count != Count(shape(x))) {
    Fail(absl::StrCat("a reshape of ", ShapeText(shape(x)), " to ", ShapeText(to)));
    return -1;
  }
  return Add("reshape", {x}, {{"to", DimsOf(to)}});
}

ValueId Translation::Permute(ValueId x, std::vector<int64_t> perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return x;
  return Add("transpose", {x}, {{"perm", std::move(perm)}});
}

ValueId Translation::Expand(ValueId x, const std::vector<int64_t>& to) {
  if (!ok()) return -1;
  const std::vector<int64_t> from = shape(x);
  std::vector<int64_t> missing(to.size(), 1);
  for (size_t d = 0; d < to.size(); ++d) {
    if (from.size() != to.size() || (from[d] != to[d] && from[d] != 1)) {
      Fail(absl::StrCat("a tensor of ", ShapeText(from), " repeated to ", ShapeText(to)));
      return -1;
    }
    if (from[d] != to[d]) missing[d] = to[d];
  }
  if (from == to) return x;
  const int64_t count = Count(missing);
  if (count < 1 || count > kFoldedElementsMax) {
    Fail(absl::StrCat("a tensor of ", ShapeText(from), " repeated to ", ShapeText(to)));
    return -1;
  }
  // The zeros have only the repeated dimensions, and an addition repeats both operands.
  return Add("add", {x, Constant(std::vector<float>(count, 0.0f), missing)});
}

ValueId Translation::Padded(ValueId x, int axis, int64_t before, int64_t after, float value) {
  if (!ok() || (before == 0 && after == 0)) return x;
  const int64_t size = shape(x)[axis];
  if (before < 0 || after < 0 || before > kPadMax || after > kPadMax || size > (int64_t{1} << 40)) {
    Fail(absl::StrCat("pads of ", before, " and ", after));
    return -1;
  }
  if (value == 0) {
    return Add("pad", {x},
               {{"axis", int64_t{axis}}, {"begin", before}, {"size", size + before + after}});
  }
  std::vector<ValueId> parts;
  for (const bool in_front : {true, false}) {
    if (!in_front) parts.push_back(x);
    const int64_t extra = in_front ? before : after;
    if (extra == 0) continue;
    std::vector<int64_t> of_part = shape(x);
    of_part[axis] = extra;
    const int64_t count = Count(of_part);
    if (count < 1 || count > kFoldedElementsMax) Fail("pads of too many elements");
    parts.push_back(ok() ? Constant(std::vector<float>(count, value), of_part) : -1);
  }
  return Add("concat", parts, {{"axis", int64_t{axis}}});
}

ValueId Translation::Take(ValueId x, int axis, const std::vector<int64_t>& indices) {
  if (!ok()) return -1;
  const std::vector<int64_t> from = shape(x);
  const int64_t size = from[axis];
  for (int64_t index : indices) {
    if (index < 0 || index >= size)
      Fail(absl::StrCat("index ", index, " of a dimension of ", size));
  }
  if (indices.empty()) Fail("a result without elements");
  if (!ok()) return -1;
  const std::vector<Run> runs = RunsOf(indices);
  if (runs.size() == 1 && runs[0].begin == 0 && runs[0].size == size) return x;
  if (runs.size() <= kRunsMax) {
    std::vector<ValueId> parts;
    for (const Run& run : runs) {
      parts.push_back(
          Add("slice", {x}, {{"axis", int64_t{axis}}, {"begin", run.begin}, {"size", run.size}}));
    }
    return parts.size() == 1 ? parts[0] : Add("concat", parts, {{"axis", int64_t{axis}}});
  }
  // Many places: a product with a matrix that has a one for each of them.
  const auto count = static_cast<int64_t>(indices.size());
  if (size > kFoldedElementsMax / count)
    Fail(absl::StrCat(count, " indices of a dimension of ", size));
  if (!ok()) return -1;
  std::vector<float> ones(size * count, 0.0f);
  for (int64_t i = 0; i < count; ++i) ones[indices[i] * count + i] = 1.0f;
  return FromLast(Add("matmul", {ToLast(x, axis), Constant(std::move(ones), {size, count})}), axis);
}

ValueId Translation::Reduce(const std::string& op, ValueId x, const std::vector<int64_t>& axes,
                            Axes kept) {
  if (!ok()) return -1;
  std::vector<int64_t> to = shape(x);
  if (!axes.empty()) {
    for (int64_t axis : axes) to[axis] = 1;
  } else {
    std::fill(to.begin(), to.end(), 1);
  }
  if (to.empty()) return x;  // one number
  const ValueId reduced = Add(op, {x}, {{"axes", axes}});
  return kept == Axes::kKept ? Reshape(reduced, to) : reduced;
}

ValueId Translation::ToLast(ValueId x, int axis) {
  return ok() ? Permute(x, MovedToLast(rank(x), axis)) : -1;
}

ValueId Translation::FromLast(ValueId x, int axis) {
  if (!ok()) return -1;
  const std::vector<int64_t> moved = MovedToLast(rank(x), axis);
  std::vector<int64_t> perm(moved.size());
  for (size_t d = 0; d < moved.size(); ++d) perm[moved[d]] = static_cast<int64_t>(d);
  return Permute(x, perm);
}

int Translation::Axis(int64_t axis, int rank) {
  if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
  Fail(absl::StrCat("axis ", axis, " of a tensor of ", rank, " dimensions"));
  return 0;
}

void Translation::Result(int output, ValueId value) {
  if (!ok() || value < 0 || output >= static_cast<int>(results_.size())) return;
  Operand& result = results_[output];
  result = Operand();
  const DType dtype = graph_->values[value].type.dtype;
  result.element = dtype == DType::kBool  ? Element::kBool
                   : dtype == DType::kI32 ? Element::kI32
                                          : Element::kF32;
  result.shape = shape(value);
  result.value = value;
}

void Translation::ResultConstant(int output, Tensor tensor) {
  if (!ok() || output >= static_cast<int>(results_.size())) return;
  Operand result;
  result.element = tensor.element;
  result.shape = tensor.shape;
  result.constant = std::make_shared<const Tensor>(std::move(tensor));
  results_[output] = std::move(result);
}

void Translation::ResultInput(int output, int i) {
  const Operand& operand = input(i);
  if (!ok() || output >= static_cast<int>(results_.size())) return;
  // A weight becomes a parameter now, so that all who read it under any name share the parameter.
  if (operand.weight != nullptr && operand.value < 0) Any(i);
  if (ok()) results_[output] = operand;
}

}  // namespace weir::onnx
