// conv, conv_transpose and the gradient of their weight. The gradient of the input of either op is
// the other op, with the same weight.
//
// The three ops read one geometry: windows over the wide side [b, g k, s...] give the narrow side
// [b, g n, t...] by a weight [g n, k, window...]. conv goes from the wide side to the narrow one,
// and conv_transpose back.
#include <limits>

#include "absl/strings/str_cat.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/type_text.h"
#include "ops/defs/window.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

using Types = std::vector<sbp::TensorType>;

std::vector<int64_t> KernelOf(const sbp::TensorType& w) {
  std::vector<int64_t> kernel;
  for (size_t d = 2; d < w.dims.size(); ++d) kernel.push_back(w.dims[d].size);
  return kernel;
}

absl::StatusOr<std::vector<WindowAxis>> ConvWindow(const Attributes& attrs,
                                                   const sbp::TensorType& w) {
  const std::vector<int64_t> kernel = KernelOf(w);
  return WindowOf(attrs, kernel, std::vector<int64_t>(kernel.size(), 1));
}

// Checks the types and ranks of x, w and bias, and that `groups` cuts the first dimension of w.
void CheckOperands(const InferInput& in, OperandCheck* check) {
  check->Real(0);
  CheckSpatial(0, check);
  if (!check->status().ok()) return;
  check->SameType(1, 0).Rank(1, static_cast<int>(check->dims(0).size()));
  if (!check->status().ok()) return;
  CheckSpatial(1, check);
  const int64_t groups = in.attrs.Int("groups", 1);
  if (groups < 1 || check->dim(1, 0).size % groups != 0) {
    check->Fail({"W0310", "",
                 absl::StrCat("groups of 1 or more that divide the first dimension of w ",
                              ToText(check->type(1))),
                 absl::StrCat(groups), "groups: 1"});
  }
  check->SameType(2, 0).Rank(2, 1);
}

// Checks that x has `groups` times as many channels as the dimension `axis` of w.
void CheckChannels(const InferInput& in, int64_t groups, int axis, OperandCheck* check) {
  if (groups == 1) {
    check->SameSize(1, axis, 0, 1);
    return;
  }
  const int64_t channels = check->dim(0, 1).size;
  if (channels % groups == 0 && channels / groups == check->dim(1, axis).size) return;
  check->Fail({"W0308", "",
               absl::StrCat("as many channels in x as groups times dimension ", axis, " of w, ",
                            groups, " times ", check->dim(1, axis).size),
               absl::StrCat(channels, " in x ", ToText(check->type(0))), ""});
}

absl::StatusOr<Types> InferConv(const InferInput& in) {
  OperandCheck check(in, {"x", "w", "bias"});
  CheckOperands(in, &check);
  WEIR_RETURN_IF_ERROR(check.status());
  CheckChannels(in, in.attrs.Int("groups", 1), 1, &check);
  WEIR_RETURN_IF_ERROR(check.SameSize(2, 0, 1, 0).status());
  WEIR_ASSIGN_OR_RETURN(const std::vector<WindowAxis> window, ConvWindow(in.attrs, in.inputs[1]));
  sbp::TensorType y = in.inputs[0];
  y.dims[1] = check.dim(1, 0);
  for (size_t d = 0; d < window.size(); ++d) {
    WEIR_ASSIGN_OR_RETURN(const int64_t count,
                          NumWindows(y.dims[d + 2], window[d], Rounding::kDown));
    y.dims[d + 2] = Resized(y.dims[d + 2], count);
  }
  WEIR_RETURN_IF_ERROR(NameResult(in, &y));
  return Types{y};
}

// Returns the size of the wide side for `count` windows, without additional elements at its end.
absl::StatusOr<int64_t> WideSize(const sbp::TensorDim& dim, const WindowAxis& axis) {
  const int64_t size = (dim.size - 1) * axis.stride + axis.extent() - 2 * axis.padding;
  if (size >= 1) return size;
  return Rejected({"W0310", "",
                   absl::StrCat("a padding that leaves elements of the windows along ", dim.name),
                   absl::StrCat("padding ", axis.padding), "padding: 0"});
}

absl::StatusOr<Types> InferConvTranspose(const InferInput& in) {
  OperandCheck check(in, {"x", "w", "bias"});
  CheckOperands(in, &check);
  WEIR_RETURN_IF_ERROR(check.SameSize(1, 0, 0, 1).status());
  const int64_t groups = in.attrs.Int("groups", 1), channels = check.dim(1, 1).size;
  sbp::TensorType y = in.inputs[0];
  if (groups == 1) {
    y.dims[1] = check.dim(1, 1);
  } else if (channels == 1 && check.dim(1, 0).size == groups) {
    y.dims[1] = check.dim(1, 0);
  } else {
    if (channels > std::numeric_limits<int64_t>::max() / groups) {
      return Rejected({"W0313", "", "fewer than 2^63 channels of y",
                       absl::StrCat(groups, " groups of ", channels), ""});
    }
    y.dims[1] = {check.dim(1, 1).name, groups * channels, channels};
  }
  if (check.Has(2) && check.dim(2, 0).size != y.dims[1].size) {
    return Rejected({"W0308", "", absl::StrCat("a bias of ", y.dims[1].size, ", the channels of y"),
                     ToText(check.type(2)), ""});
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<WindowAxis> window, ConvWindow(in.attrs, in.inputs[1]));
  WEIR_ASSIGN_OR_RETURN(
      const std::vector<int64_t> more,
      PerSpatialDim(in.attrs, "output_padding", std::vector<int64_t>(window.size(), 0), 0));
  for (size_t d = 0; d < window.size(); ++d) {
    if (more[d] >= window[d].stride) {
      return Rejected({"W0310", "", "an output_padding below the stride",
                       absl::StrCat(more[d], " with stride ", window[d].stride),
                       "output_padding: 0"});
    }
    WEIR_ASSIGN_OR_RETURN(const int64_t size, WideSize(y.dims[d + 2], window[d]));
    y.dims[d + 2] = Resized(y.dims[d + 2], size + more[d]);
  }
  WEIR_RETURN_IF_ERROR(NameResult(in, &y));
  return Types{y};
}

// The dimensions of the three tensors in the notation of RuleBuilder.
struct Letters {
  std::string wide_channels = "k", narrow_channels = "n", weight = "n k";
  std::string wide, narrow, window;  // " s0 s1"
  std::vector<std::string> whole;    // of the spatial dimensions and the window

  Letters(const Attributes& attrs, const sbp::TensorType& w) {
    const int64_t groups = attrs.Int("groups", 1);
    if (groups > 1 && w.dims[0].size == groups && w.dims[1].size == 1) {
      wide_channels = narrow_channels = "g";
      weight = "g 1";
    } else if (groups > 1) {
      wide_channels = "(g k)";
      narrow_channels = "(g n)";
      weight = "(g n) k";
    }
    const std::vector<WindowAxis> axes = *ConvWindow(attrs, w);
    for (size_t d = 0; d < axes.size(); ++d) {
      const std::string s = absl::StrCat("s", d), t = absl::StrCat("t", d),
                        v = absl::StrCat("v", d);
      absl::StrAppend(&wide, " ", s);
      absl::StrAppend(&narrow, " ", axes[d].is_point() ? s : t);
      absl::StrAppend(&window, " ", v);
      whole.push_back(v);
      if (!axes[d].is_point()) whole.insert(whole.end(), {s, t});
    }
  }
  std::string Wide() const { return absl::StrCat("b ", wide_channels, wide); }
  std::string Narrow() const { return absl::StrCat("b ", narrow_channels, narrow); }
  std::string Weight() const { return absl::StrCat(weight, window); }
};

// Completes a rule. Rules of a job that name dimensions of parameters mean the weight's names.
sbp::FactorRule Finish(RuleBuilder rule, const Letters& letters, const sbp::TensorType& w,
                       int bias) {
  for (const std::string& letter : letters.whole) rule.Whole(letter);
  if (letters.weight[0] == 'n') {
    rule.Named("n", w.dims[0].name).Named("k", w.dims[1].name);
  } else {
    rule.Named("g", w.dims[0].name);
  }
  if (bias < 0) return rule.Linear({0}).Linear({1}).Build();
  return rule.Additive(bias).Linear({0, bias}).Linear({1, bias}).Build();
}

int BiasOf(const Types& inputs) { return inputs.size() > 2 ? 2 : -1; }

sbp::FactorRule ConvRule(const Attributes& attrs, const Types& inputs, const Types& outputs) {
  const Letters l(attrs, inputs[1]);
  RuleBuilder rule(
      absl::StrCat(l.Wide(), ", ", l.Weight(), ", ", l.narrow_channels, " -> ", l.Narrow()), inputs,
      outputs);
  return Finish(std::move(rule), l, inputs[1], BiasOf(inputs));
}

sbp::FactorRule ConvTransposeRule(const Attributes& attrs, const Types& inputs,
                                  const Types& outputs) {
  const Letters l(attrs, inputs[1]);
  RuleBuilder rule(
      absl::StrCat(l.Narrow(), ", ", l.Weight(), ", ", l.wide_channels, " -> ", l.Wide()), inputs,
      outputs);
  return Finish(std::move(rule), l, inputs[1], BiasOf(inputs));
}

// Two operations for each product of an element of the narrow side and one of its window.
double Products(const sbp::TensorType& narrow, const sbp::TensorType& w) {
  double products = 2.0 * static_cast<double>(narrow.num_elements());
  for (size_t d = 1; d < w.dims.size(); ++d) products *= static_cast<double>(w.dims[d].size);
  return products;
}

Attributes Geometry(const Attributes& attrs) {
  Attributes geometry;
  for (const char* name : {"stride", "padding", "dilation"}) geometry.Set(name, attrs.Ints(name));
  geometry.Set("groups", attrs.Int("groups", 1));
  return geometry;
}

// Sets the gradients of w and of the bias. `wide` and `narrow` are the two sides.
absl::Status ParameterGradients(GradientBuilder& b, ValueId dy, bool x_is_wide) {
  if (b.needs_grad(1)) {
    Attributes attrs = Geometry(b.attrs());
    attrs.Set("out_dtype", std::string("f32"));
    attrs.Set("to", DimsText(b.input_type(1).dims));
    const ValueId x = b.input(0);
    SetGrad(b, 1, Add1(b, "conv_grad_w", {x_is_wide ? x : dy, x_is_wide ? dy : x}, attrs));
  }
  if (b.needs_grad(2)) {
    std::vector<int64_t> axes = {0};
    for (size_t d = 2; d < b.type(dy).dims.size(); ++d) axes.push_back(static_cast<int64_t>(d));
    SetGrad(b, 2, SumOver(b, dy, axes));
  }
  return absl::OkStatus();
}

absl::Status ConvGradient(GradientBuilder& b) {
  const ValueId dy = OutputGrad(b, 0);
  if (dy < 0) return absl::OkStatus();
  if (b.needs_grad(0)) {
    const std::vector<sbp::TensorDim> x = b.input_type(0).dims, y = b.output_type(0).dims;
    WEIR_ASSIGN_OR_RETURN(const std::vector<WindowAxis> window,
                          ConvWindow(b.attrs(), b.input_type(1)));
    std::vector<int64_t> more;
    for (size_t d = 0; d < window.size(); ++d) {
      const int64_t least =
          (y[d + 2].size - 1) * window[d].stride + window[d].extent() - 2 * window[d].padding;
      more.push_back(x[d + 2].size - least);
    }
    Attributes attrs = Geometry(b.attrs());
    attrs.Set("output_padding", more);
    attrs.Set("to", DimsText(x));
    SetGrad(b, 0, Add1(b, "conv_transpose", {dy, b.input(1)}, attrs));
  }
  return ParameterGradients(b, dy, true);
}

absl::Status ConvTransposeGradient(GradientBuilder& b) {
  const ValueId dy = OutputGrad(b, 0);
  if (dy < 0) return absl::OkStatus();
  if (b.needs_grad(0)) {
    Attributes attrs = Geometry(b.attrs());
    attrs.Set("to", DimsText(b.input_type(0).dims));
    SetGrad(b, 0, Add1(b, "conv", {dy, b.input(1)}, attrs));
  }
  return ParameterGradients(b, dy, false);
}

AttrSchema GroupsAttr() {
  return {"groups", AttrKind::kInt, int64_t{1},
          "the channels of x are cut into as many parts, each with a part of the channels of y"};
}

constexpr char kFactors[] =
    "with one group, k is summed; with one channel per group, g is never summed; spatial "
    "dimensions are whole, but those of a window of 1 with stride 1; bias is added once; linear in "
    "x and bias, and in w and bias";

OpDef ConvDef() {
  OpDef def;
  def.schema = {
      .name = "conv",
      .doc = "y = convolution of x with w, plus bias, over 1 to 3 spatial dimensions.",
      .inputs = {{.name = "x", .doc = "[b, k, s...]: batch, channels, spatial dimensions"},
                 {.name = "w", .doc = "[n, k / groups, window...], as PyTorch stores it"},
                 {.name = "bias", .optional = true, .doc = "[n]"}},
      .outputs = {{.name = "y",
                   .doc = "[b, n, t...] with t = (s + 2 padding - dilation (window - 1) - 1) / "
                          "stride + 1, rounded down"}},
      .attrs = {StrideAttr("1"), PaddingAttr(), DilationAttr(), GroupsAttr(), ResultDimsAttr()},
      .factors = absl::StrCat("b k s..., n k v..., n -> b n t...; ", kFactors)};
  def.infer = InferConv;
  def.rule = ConvRule;
  def.gradient = ConvGradient;
  def.flops = [](const Attributes&, const Types& inputs, const Types& outputs) {
    return Products(outputs[0], inputs[1]);
  };
  return def;
}

OpDef ConvTransposeDef() {
  OpDef def;
  def.schema = {
      .name = "conv_transpose",
      .doc =
          "y = the transposed convolution of x with w, plus bias: the map that is the gradient "
          "of conv.",
      .inputs = {{.name = "x", .doc = "[b, n, t...]: batch, channels, spatial dimensions"},
                 {.name = "w", .doc = "[n, k / groups, window...], as PyTorch stores it"},
                 {.name = "bias", .optional = true, .doc = "[k]"}},
      .outputs = {{.name = "y",
                   .doc = "[b, k, s...] with s = (t - 1) stride - 2 padding + dilation (window - "
                          "1) + 1 + output_padding"}},
      .attrs = {StrideAttr("1"),
                PaddingAttr(),
                DilationAttr(),
                GroupsAttr(),
                {"output_padding", AttrKind::kInts, std::vector<int64_t>{},
                 "elements added at the end, fewer than the stride; empty: 0"},
                ResultDimsAttr()},
      .factors = absl::StrCat(
          "b n t..., n k v..., k -> b k s...; ",
          "with one group, n is summed; with one channel per group, g is never summed; spatial "
          "dimensions are whole, but those of a window of 1 with stride 1; bias is added once; "
          "linear in x and bias, and in w and bias")};
  def.infer = InferConvTranspose;
  def.rule = ConvTransposeRule;
  def.gradient = ConvTransposeGradient;
  def.flops = [](const Attributes&, const Types& inputs, const Types&) {
    return Products(inputs[0], inputs[1]);
  };
  return def;
}

absl::StatusOr<Types> InferConvGradW(const InferInput& in) {
  OperandCheck check(in, {"x", "dy"});
  check.Real(0);
  CheckSpatial(0, &check);
  WEIR_RETURN_IF_ERROR(check.status());
  const int rank = static_cast<int>(check.dims(0).size());
  WEIR_RETURN_IF_ERROR(check.SameType(1, 0).Rank(1, rank).SameSize(1, 0, 0, 0).status());
  sbp::TensorType dw;
  WEIR_ASSIGN_OR_RETURN(dw.dtype,
                        RealDType("out_dtype", in.attrs.Str("out_dtype", "f32"), DType::kF32));
  WEIR_ASSIGN_OR_RETURN(dw.dims, ParseDims(in.attrs.Str("to"), in.dims));
  const int64_t groups = in.attrs.Int("groups", 1), channels = check.dim(0, 1).size;
  bool fits = static_cast<int>(dw.dims.size()) == rank && groups >= 1 && channels % groups == 0 &&
              dw.dims[0].size == check.dim(1, 1).size && dw.dims[0].size % groups == 0 &&
              dw.dims[1].size == channels / groups;
  if (fits) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<WindowAxis> window, ConvWindow(in.attrs, dw));
    for (int d = 2; d < rank; ++d) {
      WEIR_ASSIGN_OR_RETURN(const int64_t count,
                            NumWindows(check.dim(0, d), window[d - 2], Rounding::kDown));
      fits = fits && count == check.dim(1, d).size;
    }
  }
  if (!fits) {
    return Rejected({"W0310", "",
                     absl::StrCat("attribute to with the dimensions of a weight between x ",
                                  ToText(check.type(0)), " and dy ", ToText(check.type(1))),
                     in.attrs.Str("to"), ""});
  }
  return Types{dw};
}

OpDef ConvGradWDef() {
  OpDef def;
  def.schema = {
      .name = "conv_grad_w",
      .doc = "dw = the gradient of the weight of conv, summed over the batch.",
      .inputs = {{.name = "x", .doc = "[b, k, s...]"}, {.name = "dy", .doc = "[b, n, t...]"}},
      .outputs = {{.name = "dw", .doc = "[n, k / groups, window...]"}},
      .attrs = {StrideAttr("1"),
                PaddingAttr(),
                DilationAttr(),
                GroupsAttr(),
                {"out_dtype", AttrKind::kString, std::string("f32"), "element type of dw"},
                {"to", AttrKind::kString, std::nullopt, "dimensions of dw (type text)"}},
      .internal = true,
      .factors =
          "b k s..., b n t... -> n k v...; the batch is summed; linear in x, and "
          "in dy"};
  def.infer = InferConvGradW;
  def.rule = [](const Attributes& attrs, const Types& inputs, const Types& outputs) {
    const Letters l(attrs, outputs[0]);
    RuleBuilder rule(absl::StrCat(l.Wide(), ", ", l.Narrow(), " -> ", l.Weight()), inputs, outputs);
    return Finish(std::move(rule), l, outputs[0], -1);
  };
  def.flops = [](const Attributes&, const Types& inputs, const Types& outputs) {
    return Products(inputs[1], outputs[0]);
  };
  return def;
}

WEIR_REGISTER_OP(ConvDef());
WEIR_REGISTER_OP(ConvTransposeDef());
WEIR_REGISTER_OP(ConvGradWDef());

}  // namespace
}  // namespace weir::ops
