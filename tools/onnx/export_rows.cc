// This file translates each operation of Weir to operations of ONNX.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tools/onnx/export_node.h"
#include "tools/onnx/tensor.h"

namespace weir::onnx {
namespace {

using Sizes = std::vector<int64_t>;

// An operation that ONNX has under another name, with the same operands.
template <const char* op>
void Same(ExportNode& e) {
  std::vector<std::string> inputs;
  for (int i = 0; e.Has(i); ++i) inputs.push_back(e.In(i));
  e.Result(0, op, inputs);
}

#define WEIR_ONNX_NAME(name) constexpr char k_##name[] = #name
WEIR_ONNX_NAME(Abs);
WEIR_ONNX_NAME(Add);
WEIR_ONNX_NAME(And);
WEIR_ONNX_NAME(Ceil);
WEIR_ONNX_NAME(Cos);
WEIR_ONNX_NAME(Div);
WEIR_ONNX_NAME(Erf);
WEIR_ONNX_NAME(Exp);
WEIR_ONNX_NAME(Floor);
WEIR_ONNX_NAME(Gelu);
WEIR_ONNX_NAME(Identity);
WEIR_ONNX_NAME(Log);
WEIR_ONNX_NAME(Max);
WEIR_ONNX_NAME(Min);
WEIR_ONNX_NAME(Mul);
WEIR_ONNX_NAME(Not);
WEIR_ONNX_NAME(Or);
WEIR_ONNX_NAME(Reciprocal);
WEIR_ONNX_NAME(Relu);
WEIR_ONNX_NAME(Round);
WEIR_ONNX_NAME(Sigmoid);
WEIR_ONNX_NAME(Sign);
WEIR_ONNX_NAME(Sin);
WEIR_ONNX_NAME(Softmax);
WEIR_ONNX_NAME(Softplus);
WEIR_ONNX_NAME(Sqrt);
WEIR_ONNX_NAME(Sub);
WEIR_ONNX_NAME(Tanh);
WEIR_ONNX_NAME(Xor);
#undef WEIR_ONNX_NAME

// ---- element by element

void Square(ExportNode& e) { e.Result(0, "Mul", {e.In(0), e.In(0)}); }
void Rsqrt(ExportNode& e) { e.Result(0, "Reciprocal", {e.Add("Sqrt", {e.In(0)})}); }
void Log1p(ExportNode& e) { e.Result(0, "Log", {e.Add("Add", {e.In(0), e.Real(1)})}); }
void Expm1(ExportNode& e) { e.Result(0, "Sub", {e.Add("Exp", {e.In(0)}), e.Real(1)}); }
void Silu(ExportNode& e) { e.Result(0, "Mul", {e.In(0), e.Add("Sigmoid", {e.In(0)})}); }
void GeluTanh(ExportNode& e) {
  e.Result(0, "Gelu", {e.In(0)}, NodeAttributes().Text("approximate", "tanh"));
}
void Scale(ExportNode& e) { e.Result(0, "Mul", {e.In(0), e.Real(e.attrs().Real("factor"))}); }
void Power(ExportNode& e) { e.Result(0, "Pow", {e.In(0), e.Real(e.attrs().Real("exponent"))}); }
void Elu(ExportNode& e) {
  e.Result(0, "Elu", {e.In(0)}, NodeAttributes().Real("alpha", e.attrs().Real("alpha", 1)));
}
void LeakyRelu(ExportNode& e) {
  e.Result(0, "LeakyRelu", {e.In(0)},
           NodeAttributes().Real("alpha", e.attrs().Real("slope", 0.01)));
}
void Clamp(ExportNode& e) {
  e.Result(0, "Clip", {e.In(0), e.Real(e.attrs().Real("min")), e.Real(e.attrs().Real("max"))});
}
// (sign(x) + 1) / 2
void Step(ExportNode& e) {
  e.Result(0, "Mul", {e.Add("Add", {e.Add("Sign", {e.In(0)}), e.Real(1)}), e.Real(0.5)});
}

// A cast to bf16 or f16 rounds; the result is f32 again, as all reals of the model are.
void Cast(ExportNode& e) {
  const std::string to = e.attrs().Str("to");
  std::string x = e.In(0);
  if (to == "bf16" || to == "f16") {
    const Element half = to == "bf16" ? Element::kBF16 : Element::kF16;
    x = e.Add("Cast", {x}, NodeAttributes().Int("to", static_cast<int64_t>(half)));
  }
  e.Result(0, "Cast", {x},
           NodeAttributes().Int("to", e.builder().ElementOf(e.output(0).type.dtype)));
}

// The second operand, or the number in its place.
std::string Compared(ExportNode& e) {
  return e.Has(1) ? e.In(1) : e.builder().Number(e.attrs().Real("value"), e.dtype(0));
}

template <const char* op>
void Compare(ExportNode& e) {
  std::vector<std::string> operands = {e.In(0), Compared(e)};
  if (e.dtype(0) == DType::kBool && std::string(op) != "Equal") {
    for (std::string& operand : operands) {
      operand =
          e.Add("Cast", {operand}, NodeAttributes().Int("to", e.builder().ElementOf(DType::kI32)));
    }
  }
  e.Result(0, op, operands);
}
void NotEqual(ExportNode& e) { e.Result(0, "Not", {e.Add("Equal", {e.In(0), Compared(e)})}); }
constexpr char k_Equal[] = "Equal", k_Greater[] = "Greater", k_Less[] = "Less",
               k_GreaterOrEqual[] = "GreaterOrEqual", k_LessOrEqual[] = "LessOrEqual";

void Where(ExportNode& e) {
  const std::string otherwise =
      e.Has(2) ? e.In(2) : e.builder().Number(e.attrs().Real("value"), e.dtype(1));
  e.Result(0, "Where", {e.In(0), e.In(1), otherwise});
}

// ---- movement

void Reshape(ExportNode& e) { e.Reshape(); }

void Transpose(ExportNode& e) {
  e.Result(0, "Transpose", {e.In(0)}, NodeAttributes().Ints("perm", e.attrs().Ints("perm")));
}

void Concat(ExportNode& e) {
  const int axis = static_cast<int>(e.attrs().Int("axis"));
  std::vector<std::string> inputs;
  for (int i = 0; e.Has(i); ++i) {
    inputs.push_back(e.In(i));
    e.Fixes(i, axis);
  }
  e.Result(0, "Concat", inputs, NodeAttributes().Int("axis", axis));
}

void Slice(ExportNode& e) {
  const int64_t axis = e.attrs().Int("axis"), begin = e.attrs().Int("begin");
  e.Fixes(0, static_cast<int>(axis));
  e.Result(0, "Slice",
           {e.In(0), e.Ints({begin}), e.Ints({begin + e.attrs().Int("size")}), e.Ints({axis})});
}

void Pad(ExportNode& e) {
  const int64_t axis = e.attrs().Int("axis"), begin = e.attrs().Int("begin");
  e.Fixes(0, static_cast<int>(axis));
  const int64_t after = e.attrs().Int("size") - begin - e.size(0, static_cast<int>(axis));
  e.Result(0, "Pad", {e.In(0), e.Ints({begin, after}), "", e.Ints({axis})});
}

void Embedding(ExportNode& e) {
  e.Result(0, "Gather", {e.In(0), e.In(1)}, NodeAttributes().Int("axis", 0));
}

void Take(ExportNode& e) {
  e.Result(0, "Gather", {e.In(0), e.In(1)}, NodeAttributes().Int("axis", e.attrs().Int("axis")));
}

void Gather(ExportNode& e) {
  e.Result(0, "GatherElements", {e.In(0), e.In(1)},
           NodeAttributes().Int("axis", e.attrs().Int("axis")));
}

void ScatterAdd(ExportNode& e) {
  const int axis = static_cast<int>(e.attrs().Int("axis"));
  Sizes shape;
  for (const sbp::TensorDim& dim : e.output(0).type.dims) shape.push_back(dim.size);
  for (int d = 0; d < e.rank(0); ++d) e.Fixes(0, d);
  e.Result(0, "ScatterElements", {e.Add("ConstantOfShape", {e.Ints(shape)}), e.In(1), e.In(0)},
           NodeAttributes().Int("axis", axis).Text("reduction", "add"));
}

void OneHot(ExportNode& e) {
  const int64_t classes = e.output(0).type.dims.back().size;
  e.Result(0, "OneHot",
           {e.In(0), e.Ints({classes}),
            e.builder().Reals(absl::StrCat(e.name(), ".values"), {0, 1}, {2})},
           NodeAttributes().Int("axis", -1));
}

// ---- choices and sums along one axis

void Argmax(ExportNode& e) {
  const std::string place =
      e.Add(e.attrs().Bool("largest", true) ? "ArgMax" : "ArgMin", {e.In(0)},
            NodeAttributes().Int("axis", e.attrs().Int("axis")).Int("keepdims", 0));
  e.Result(0, "Cast", {place}, NodeAttributes().Int("to", e.builder().ElementOf(DType::kI32)));
}

void TopK(ExportNode& e) {
  const int axis = static_cast<int>(e.attrs().Int("axis"));
  e.Fixes(0, axis);
  const std::string places = e.builder().TakeName(absl::StrCat(e.name(), ".places"));
  e.builder().AddNode(
      "TopK", {e.In(0), e.Ints({e.attrs().Int("k")})}, {e.name(), places},
      NodeAttributes().Int("axis", axis).Int("largest", e.attrs().Bool("largest", true) ? 1 : 0));
  if (e.num_outputs() > 1)
    e.Result(1, "Cast", {places}, NodeAttributes().Int("to", e.builder().ElementOf(DType::kI32)));
}

void Cumsum(ExportNode& e) {
  e.Result(0, "CumSum", {e.In(0), e.Ints({e.attrs().Int("axis")})},
           NodeAttributes()
               .Int("exclusive", e.attrs().Bool("exclusive") ? 1 : 0)
               .Int("reverse", e.attrs().Bool("reverse") ? 1 : 0));
}

// ---- reductions and norms

template <const char* op>
void Reduce(ExportNode& e) {
  Sizes axes = e.attrs().Ints("axes");
  if (axes.empty()) {
    axes.resize(e.rank(0));
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (axes.empty()) return e.Result(0, "Identity", {e.In(0)});
  e.Result(0, op, {e.In(0), e.Ints(axes)}, NodeAttributes().Int("keepdims", 0));
}
constexpr char k_ReduceSum[] = "ReduceSum", k_ReduceMean[] = "ReduceMean",
               k_ReduceMax[] = "ReduceMax";

void ReduceVariance(ExportNode& e) {
  const Sizes axes = e.attrs().Ints("axes");
  const std::string centred = e.Add("Sub", {e.In(0), e.PutAxes(e.In(1), axes)});
  e.Result(0, "ReduceMean", {e.Add("Mul", {centred, centred}), e.Ints(axes)},
           NodeAttributes().Int("keepdims", 0));
  if (e.num_outputs() < 2) return;
  double n = 1;
  for (int64_t axis : axes) {
    e.Fixes(0, static_cast<int>(axis));
    n *= static_cast<double>(e.size(0, static_cast<int>(axis)));
  }
  e.Result(1, "Mul", {e.output(0).name, e.Real(n > 1 ? n / (n - 1) : 1)});
}

// A norm over the channels, which are dimension 1, is a batch normalisation.
void Normalize(ExportNode& e) {
  Sizes axes = e.attrs().Ints("axes");
  std::sort(axes.begin(), axes.end());
  const double epsilon = e.attrs().Real("epsilon", 1e-5);
  Sizes all_but_channels;
  for (int64_t d = 0; d < e.rank(0); ++d) {
    if (d != 1) all_but_channels.push_back(d);
  }
  if (axes == all_but_channels && e.Has(3) && e.Has(4)) {
    return e.Result(0, "BatchNormalization", {e.In(0), e.In(3), e.In(4), e.In(1), e.In(2)},
                    NodeAttributes().Real("epsilon", epsilon));
  }
  const std::string deviation =
      e.Add("Sqrt", {e.Add("Add", {e.PutAxes(e.In(2), axes), e.Real(epsilon)})});
  std::string y = e.Add("Div", {e.Add("Sub", {e.In(0), e.PutAxes(e.In(1), axes)}), deviation});
  if (e.Has(3)) y = e.Add("Mul", {y, e.PutAxes(e.In(3), axes)});
  if (e.Has(4)) y = e.Add("Add", {y, e.PutAxes(e.In(4), axes)});
  e.Result(0, "Identity", {y});
}

void LayerNorm(ExportNode& e) {
  if (e.num_outputs() > 1) return e.Fail("results besides the first");
  std::vector<std::string> inputs = {e.In(0), e.In(1)};
  if (e.Has(2)) inputs.push_back(e.In(2));
  e.Result(0, "LayerNormalization", inputs,
           NodeAttributes().Int("axis", -1).Real("epsilon", e.attrs().Real("epsilon", 1e-5)));
}

void RmsNorm(ExportNode& e) {
  if (e.num_outputs() > 1) return e.Fail("results besides the first");
  e.Result(0, "RMSNormalization", {e.In(0), e.In(1)},
           NodeAttributes().Int("axis", -1).Real("epsilon", e.attrs().Real("epsilon", 1e-5)));
}

// ---- products

void Matmul(ExportNode& e) {
  if (e.num_outputs() > 1) return e.Fail("results besides the first");
  const std::string w = e.attrs().Bool("transpose_w") ? e.Transposed(e.In(1), 2) : e.In(1);
  const std::string activation = e.attrs().Str("activation", "none");
  const bool plain = activation == "none", has_bias = e.Has(2);
  if (plain && !has_bias) return e.Result(0, "MatMul", {e.In(0), w});
  std::string y = e.Add("MatMul", {e.In(0), w});
  if (plain) return e.Result(0, "Add", {y, e.In(2)});
  if (has_bias) y = e.Add("Add", {y, e.In(2)});
  if (activation == "relu") return e.Result(0, "Relu", {y});
  if (activation == "silu") return e.Result(0, "Mul", {y, e.Add("Sigmoid", {y})});
  if (activation == "gelu" || activation == "gelu_exact") {
    return e.Result(0, "Gelu", {y},
                    NodeAttributes().Text("approximate", activation == "gelu" ? "tanh" : "none"));
  }
  e.Fail(absl::StrCat("activation ", activation));
}

void BatchedMatmul(ExportNode& e) {
  const auto turned = [&](int i, const char* attr) {
    return e.attrs().Bool(attr) ? e.Transposed(e.In(i), e.rank(i)) : e.In(i);
  };
  e.Result(0, "MatMul", {turned(0, "transpose_a"), turned(1, "transpose_b")});
}

// Returns the window of keys as a mask [queries, keys]; "": the attention has none.
std::string WindowMask(ExportNode& e, bool* causal) {
  const int64_t window = e.attrs().Int("window", 0), queries = e.size(0, 1);
  if (window <= 0 || window >= queries) return "";
  if (queries > kFoldedElementsMax / queries) {
    e.Fail(absl::StrCat("a window over ", queries, " positions"));
    return "";
  }
  *causal = false;  // the mask says it
  std::vector<bool> seen;
  for (int64_t query = 0; query < queries; ++query) {
    for (int64_t key = 0; key < queries; ++key)
      seen.push_back(key <= query && key > query - window);
  }
  const std::string mask =
      e.builder().Truths(absl::StrCat(e.name(), ".window"), seen, {queries, queries});
  return e.CutLike(e.CutLike(mask, 0, 0, 1), 1, 0, 1);
}

// Operands of three dimensions, [batch, positions, heads * width], save the transposes.
void Attention(ExportNode& e) {
  if (e.num_outputs() > 1) return e.Fail("results besides the first");
  const int64_t heads = e.size(0, 2), groups = e.size(1, 2), width = e.size(0, 3);
  bool causal = e.attrs().Bool("causal", true);
  std::vector<std::string> inputs;
  for (int i : {0, 1, 2}) {
    inputs.push_back(
        e.Add("Reshape", {e.In(i), e.Ints({0, 0, (i == 0 ? heads : groups) * width})}));
  }
  const std::string window = WindowMask(e, &causal);
  if (e.Has(3) && !window.empty()) {
    inputs.push_back(e.dtype(3) == DType::kBool ? e.Add("And", {e.In(3), window})
                                                : e.Add("Where", {window, e.In(3), e.Real(-1e30)}));
  } else if (e.Has(3) || !window.empty()) {
    inputs.push_back(e.Has(3) ? e.In(3) : window);
  }
  NodeAttributes attributes;
  attributes.Int("q_num_heads", heads).Int("kv_num_heads", groups).Int("is_causal", causal ? 1 : 0);
  if (const double scale = e.attrs().Real("scale", 0); scale != 0) attributes.Real("scale", scale);
  const std::string y = e.Add("Attention", inputs, attributes);
  e.Result(0, "Reshape", {y, e.Ints({0, 0, heads, width})});
}

// The pairs (i, i + d/2) of each head turn by angles that the file holds for the positions of the
// job; a shorter sequence takes the first of them.
void Rotary(ExportNode& e) {
  if (e.Has(1)) return e.Fail("positions as an operand");
  const int64_t positions = e.size(0, 1), half = e.size(0, 3) / 2;
  if (positions > kFoldedElementsMax / half)
    return e.Fail(absl::StrCat("angles of ", positions, " positions"));
  std::vector<float> cosines, sines;
  const double base = e.attrs().Real("base", 10000), sign = e.attrs().Bool("inverse") ? -1 : 1;
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(sign * std::sin(angle)));
    }
  }
  const auto table = [&](const char* what, const std::vector<float>& values) {
    const std::string whole =
        e.builder().Reals(absl::StrCat(e.name(), what), values, {positions, 1, half});
    return e.CutLike(whole, 0, 0, 1);
  };
  const std::string cosine = table(".cosine", cosines), sine = table(".sine", sines);
  const auto part = [&](int64_t begin) {
    return e.Add("Slice", {e.In(0), e.Ints({begin}), e.Ints({begin + half}), e.Ints({3})});
  };
  const std::string first = part(0), second = part(half);
  const auto times = [&](const std::string& a, const std::string& b) {
    return e.Add("Mul", {a, b});
  };
  const std::string turned_first = e.Add("Sub", {times(first, cosine), times(second, sine)});
  const std::string turned_second = e.Add("Add", {times(first, sine), times(second, cosine)});
  e.Result(0, "Concat", {turned_first, turned_second}, NodeAttributes().Int("axis", 3));
}

// ---- windows over places

// Returns an attribute with one number per place dimension.
Sizes PerPlace(ExportNode& e, const char* name, int64_t fallback) {
  const auto places = static_cast<size_t>(e.rank(0) - 2);
  Sizes numbers = e.attrs().Ints(name);
  if (numbers.empty()) numbers = {fallback};
  if (numbers.size() == 1) numbers.resize(places, numbers[0]);
  return numbers;
}

NodeAttributes WindowAttributes(ExportNode& e, const Sizes& stride) {
  Sizes pads = PerPlace(e, "padding", 0);
  const Sizes begins = pads;
  pads.insert(pads.end(), begins.begin(), begins.end());
  NodeAttributes attributes;
  attributes.Ints("strides", stride).Ints("pads", pads);
  return attributes;
}

void FixPlaces(ExportNode& e) {
  for (int d = 1; d < e.rank(0); ++d) e.Fixes(0, d);
}

void Conv(ExportNode& e) {
  FixPlaces(e);
  std::vector<std::string> inputs = {e.In(0), e.In(1)};
  if (e.Has(2)) inputs.push_back(e.In(2));
  e.Result(0, "Conv", inputs,
           WindowAttributes(e, PerPlace(e, "stride", 1))
               .Ints("dilations", PerPlace(e, "dilation", 1))
               .Int("group", e.attrs().Int("groups", 1)));
}

void ConvTranspose(ExportNode& e) {
  FixPlaces(e);
  std::vector<std::string> inputs = {e.In(0), e.In(1)};
  if (e.Has(2)) inputs.push_back(e.In(2));
  e.Result(0, "ConvTranspose", inputs,
           WindowAttributes(e, PerPlace(e, "stride", 1))
               .Ints("dilations", PerPlace(e, "dilation", 1))
               .Ints("output_padding", PerPlace(e, "output_padding", 0))
               .Int("group", e.attrs().Int("groups", 1)));
}

NodeAttributes PoolAttributes(ExportNode& e) {
  FixPlaces(e);
  const Sizes kernel = PerPlace(e, "kernel", 1);
  const Sizes stride = e.attrs().Ints("stride").empty() ? kernel : PerPlace(e, "stride", 1);
  return WindowAttributes(e, stride)
      .Ints("kernel_shape", kernel)
      .Int("ceil_mode", e.attrs().Bool("ceil") ? 1 : 0);
}

void MaxPool(ExportNode& e) {
  e.Result(0, "MaxPool", {e.In(0)},
           PoolAttributes(e).Ints("dilations", PerPlace(e, "dilation", 1)));
}

void AveragePool(ExportNode& e) {
  e.Result(
      0, "AveragePool", {e.In(0)},
      PoolAttributes(e).Int("count_include_pad", e.attrs().Bool("count_padding", true) ? 1 : 0));
}

// ---- losses and metrics

void SoftmaxCrossEntropy(ExportNode& e) {
  if (e.num_outputs() > 1) return e.Fail("results besides the first");
  if (e.attrs().Real("label_smoothing", 0) != 0) return e.Fail("smoothed labels");
  const Sizes ignored = e.attrs().Ints("ignore_index");
  if (ignored.size() > 1) return e.Fail("several ignored labels");
  NodeAttributes attributes;
  attributes.Text("reduction", "none");
  if (!ignored.empty()) attributes.Int("ignore_index", ignored[0]);
  const int64_t classes = e.size(0, e.rank(0) - 1);
  const std::string losses = e.Add("SoftmaxCrossEntropyLoss",
                                   {e.Add("Reshape", {e.In(0), e.Ints({-1, classes})}),
                                    e.Add("Reshape", {e.In(1), e.Ints({-1})})},
                                   attributes);
  e.Result(0, "Reshape", {losses, e.Add("Shape", {e.In(1)})});
}

void Accuracy(ExportNode& e) {
  if (!e.attrs().Ints("ignore_index").empty()) return e.Fail("ignored labels");
  const std::string best =
      e.Add("ArgMax", {e.In(0)}, NodeAttributes().Int("axis", -1).Int("keepdims", 0));
  const std::string labels =
      e.Add("Cast", {e.In(1)}, NodeAttributes().Int("to", static_cast<int64_t>(Element::kI64)));
  e.Result(0, "Cast", {e.Add("Equal", {best, labels})},
           NodeAttributes().Int("to", static_cast<int64_t>(Element::kF32)));
}

const std::map<std::string, ExportFunction>& Rows() {
  static const auto* rows = new std::map<std::string, ExportFunction>{
      {"abs", Same<k_Abs>},
      {"accuracy", Accuracy},
      {"add", Same<k_Add>},
      {"attention", Attention},
      {"argmax", Argmax},
      {"average_pool", AveragePool},
      {"batched_matmul", BatchedMatmul},
      {"cast", Cast},
      {"ceil", Same<k_Ceil>},
      {"clamp", Clamp},
      {"concat", Concat},
      {"conv", Conv},
      {"conv_transpose", ConvTranspose},
      {"cos", Same<k_Cos>},
      {"cumsum", Cumsum},
      {"div", Same<k_Div>},
      {"dropout", Same<k_Identity>},
      {"elu", Elu},
      {"embedding", Embedding},
      {"equal", Compare<k_Equal>},
      {"erf", Same<k_Erf>},
      {"exp", Same<k_Exp>},
      {"expm1", Expm1},
      {"floor", Same<k_Floor>},
      {"gather", Gather},
      {"gelu", GeluTanh},
      {"gelu_exact", Same<k_Gelu>},
      {"greater", Compare<k_Greater>},
      {"greater_equal", Compare<k_GreaterOrEqual>},
      {"layer_norm", LayerNorm},
      {"leaky_relu", LeakyRelu},
      {"less", Compare<k_Less>},
      {"less_equal", Compare<k_LessOrEqual>},
      {"log", Same<k_Log>},
      {"log1p", Log1p},
      {"logical_and", Same<k_And>},
      {"logical_not", Same<k_Not>},
      {"logical_or", Same<k_Or>},
      {"logical_xor", Same<k_Xor>},
      {"matmul", Matmul},
      {"max_pool", MaxPool},
      {"maximum", Same<k_Max>},
      {"minimum", Same<k_Min>},
      {"mul", Same<k_Mul>},
      {"normalize", Normalize},
      {"not_equal", NotEqual},
      {"one_hot", OneHot},
      {"pad", Pad},
      {"power", Power},
      {"reciprocal", Same<k_Reciprocal>},
      {"reduce_max", Reduce<k_ReduceMax>},
      {"reduce_mean", Reduce<k_ReduceMean>},
      {"reduce_sum", Reduce<k_ReduceSum>},
      {"reduce_variance", ReduceVariance},
      {"relu", Same<k_Relu>},
      {"reshape", Reshape},
      {"rms_norm", RmsNorm},
      {"rotary", Rotary},
      {"round", Same<k_Round>},
      {"rsqrt", Rsqrt},
      {"scale", Scale},
      {"scatter_add", ScatterAdd},
      {"sigmoid", Same<k_Sigmoid>},
      {"sign", Same<k_Sign>},
      {"silu", Silu},
      {"sin", Same<k_Sin>},
      {"slice", Slice},
      {"softmax", Same<k_Softmax>},
      {"softmax_cross_entropy", SoftmaxCrossEntropy},
      {"softplus", Same<k_Softplus>},
      {"sqrt", Same<k_Sqrt>},
      {"square", Square},
      {"step", Step},
      {"step_mean", Same<k_Identity>},
      {"sub", Same<k_Sub>},
      {"take", Take},
      {"tanh", Same<k_Tanh>},
      {"top_k", TopK},
      {"transpose", Transpose},
      {"where", Where},
  };
  return *rows;
}

}  // namespace

ExportFunction FindExport(const std::string& op) {
  const auto found = Rows().find(op);
  return found == Rows().end() ? nullptr : found->second;
}

std::vector<std::string> ExportedOps() {
  std::vector<std::string> names;
  for (const auto& [name, function] : Rows()) names.push_back(name);
  return names;
}

}  // namespace weir::onnx
