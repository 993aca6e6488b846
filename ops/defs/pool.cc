// max_pool and average_pool over 1 to 3 spatial dimensions, and their gradients. The mean over
// whole spatial dimensions is reduce_mean.
#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/type_text.h"
#include "ops/defs/window.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

using Types = std::vector<sbp::TensorType>;

// Returns the windows over x, of which each has an element of x.
absl::StatusOr<std::vector<WindowAxis>> PoolWindow(const Attributes& attrs,
                                                   const sbp::TensorType& x) {
  const std::vector<int64_t> ones(x.dims.size() - 2, 1);
  if (attrs.Ints("kernel").empty()) {
    return Rejected({"W0310", "", "a kernel with one number or one per spatial dimension", "none",
                     "kernel: 2"});
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> kernel, PerSpatialDim(attrs, "kernel", ones, 1));
  WEIR_ASSIGN_OR_RETURN(const std::vector<WindowAxis> window, WindowOf(attrs, kernel, kernel));
  for (size_t d = 0; d < window.size(); ++d) {
    const WindowAxis& axis = window[d];
    if (2 * axis.padding > axis.kernel) {
      return Rejected({"W0310", "", "a padding of at most half the kernel",
                       absl::StrCat("padding ", axis.padding, ", kernel ", axis.kernel),
                       absl::StrCat("padding: ", axis.kernel / 2)});
    }
    const sbp::TensorDim& dim = x.dims[d + 2];
    if (axis.padding > 0 && axis.dilation > dim.size) {
      return Rejected({"W0310", "",
                       absl::StrCat("a dilation of at most ", dim.size, ", the size of ", dim.name,
                                    ", so that each window with padding has an element"),
                       absl::StrCat(axis.dilation), "padding: 0"});
    }
  }
  return window;
}

// Returns the type of the windows over x, without the names of `to`.
absl::StatusOr<sbp::TensorType> Pooled(const Attributes& attrs, const sbp::TensorType& x) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<WindowAxis> window, PoolWindow(attrs, x));
  sbp::TensorType y = x;
  const Rounding rounding = attrs.Bool("ceil") ? Rounding::kUp : Rounding::kDown;
  for (size_t d = 0; d < window.size(); ++d) {
    WEIR_ASSIGN_OR_RETURN(const int64_t count, NumWindows(x.dims[d + 2], window[d], rounding));
    y.dims[d + 2] = Resized(x.dims[d + 2], count);
  }
  return y;
}

absl::StatusOr<Types> InferPool(const InferInput& in) {
  OperandCheck check(in, {"x"});
  check.Real(0);
  CheckSpatial(0, &check);
  WEIR_RETURN_IF_ERROR(check.status());
  WEIR_ASSIGN_OR_RETURN(sbp::TensorType y, Pooled(in.attrs, in.inputs[0]));
  WEIR_RETURN_IF_ERROR(NameResult(in, &y));
  return Types{y};
}

// Returns " s0 s1" for letter "s".
std::string Spatial(const char* letter, size_t rank) {
  std::string text;
  for (size_t d = 2; d < rank; ++d) absl::StrAppend(&text, " ", letter, d);
  return text;
}

// Returns the rule of operands with the spatial dimensions of x ("s") or of y ("t"), all whole.
sbp::FactorRule PoolRule(const std::string& operands, const Types& inputs, const Types& outputs) {
  const size_t rank = inputs[0].dims.size();
  std::string text;
  for (char c : operands) {
    if (c == 's' || c == 't') {
      absl::StrAppend(&text, "b c", Spatial(c == 's' ? "s" : "t", rank));
    } else {
      text += c;
    }
  }
  RuleBuilder rule(text, inputs, outputs);
  for (size_t d = 2; d < rank; ++d) {
    rule.Whole(absl::StrCat("s", d)).Whole(absl::StrCat("t", d));
  }
  return rule.Build();
}

sbp::FactorRule WithLinear(sbp::FactorRule rule, int input) {
  rule.linear.push_back(ToAllOutputs({input}, 1));
  return rule;
}

std::vector<AttrSchema> PoolAttrs() {
  return {{"kernel", AttrKind::kInts, std::nullopt,
           "elements of a window, one number or one per spatial dimension"},
          StrideAttr("the kernel"),
          PaddingAttr(),
          {"ceil", AttrKind::kBool, false,
           "count a last window that is cut off, unless it begins in the padding on the right"}};
}

FlopsFunction OnePerWindowElement(int windows, bool of_output) {
  return [=](const Attributes& attrs, const Types& inputs, const Types& outputs) {
    const sbp::TensorType& y = of_output ? outputs[windows] : inputs[windows];
    double operations = static_cast<double>(y.num_elements());
    const std::vector<int64_t> kernel =
        *PerSpatialDim(attrs, "kernel", std::vector<int64_t>(y.dims.size() - 2, 1), 1);
    for (int64_t size : kernel) operations *= static_cast<double>(size);
    return operations;
  };
}

Attributes Copied(const Attributes& attrs, const std::vector<AttrSchema>& schema) {
  Attributes copied;
  for (const AttrSchema& attr : schema) {
    const auto found = attrs.map().find(attr.name);
    if (found != attrs.map().end()) copied.Set(attr.name, found->second);
  }
  return copied;
}

std::vector<AttrSchema> MaxPoolAttrs() {
  std::vector<AttrSchema> attrs = PoolAttrs();
  attrs.push_back(DilationAttr());
  return attrs;
}

OpDef MaxPoolDef() {
  OpDef def;
  def.schema = {
      .name = "max_pool",
      .doc =
          "y = the largest element of each window over x; padding is never the "
          "largest.",
      .inputs = {{.name = "x", .doc = "[b, c, s...]: batch, channels, spatial dimensions"}},
      .outputs = {{.name = "y", .doc = "[b, c, t...], sized as by conv"}},
      .attrs = MaxPoolAttrs(),
      .factors = "b c s... -> b c t...; spatial dimensions are whole"};
  def.schema.attrs.push_back(ResultDimsAttr());
  def.infer = InferPool;
  def.rule = [](const Attributes&, const Types& inputs, const Types& outputs) {
    return PoolRule("s -> t", inputs, outputs);
  };
  def.gradient = [](GradientBuilder& b) {
    const ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0))
      SetGrad(b, 0, Add1(b, "max_pool_grad", {b.input(0), dy}, Copied(b.attrs(), MaxPoolAttrs())));
    return absl::OkStatus();
  };
  def.flops = OnePerWindowElement(0, true);
  return def;
}

// W0308 unless dy has the shape of the windows over x.
absl::Status CheckWindows(const InferInput& in, const sbp::TensorType& x, int dy) {
  WEIR_ASSIGN_OR_RETURN(const sbp::TensorType y, Pooled(in.attrs, x));
  if (y.shape() == in.inputs[dy].shape()) return absl::OkStatus();
  return Rejected(
      {"W0308", "", absl::StrCat("dy shaped like ", ToText(y)), ToText(in.inputs[dy]), ""});
}

OpDef MaxPoolGradDef() {
  OpDef def;
  def.schema = {
      .name = "max_pool_grad",
      .doc =
          "dx = the sum of dy over the windows in which x is the largest element; of "
          "equal elements, the first one.",
      .inputs = {{.name = "x", .doc = "[b, c, s...]"}, {.name = "dy", .doc = "[b, c, t...]"}},
      .outputs = {{.name = "dx", .doc = "like x"}},
      .attrs = MaxPoolAttrs(),
      .internal = true,
      .factors =
          "b c s..., b c t... -> b c s...; spatial dimensions are whole; linear "
          "in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"x", "dy"});
    check.Real(0);
    CheckSpatial(0, &check);
    WEIR_RETURN_IF_ERROR(check.SameType(1, 0).status());
    WEIR_RETURN_IF_ERROR(CheckWindows(in, in.inputs[0], 1));
    return Types{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const Types& inputs, const Types& outputs) {
    return WithLinear(PoolRule("s, t -> s", inputs, outputs), 1);
  };
  def.flops = OnePerWindowElement(1, false);
  return def;
}

std::vector<AttrSchema> AveragePoolAttrs() {
  std::vector<AttrSchema> attrs = PoolAttrs();
  attrs.push_back({"count_padding", AttrKind::kBool, true,
                   "true: padding counts as zeros; false: the mean of the elements of x alone"});
  return attrs;
}

OpDef AveragePoolDef() {
  OpDef def;
  def.schema = {
      .name = "average_pool",
      .doc = "y = the mean of each window over x.",
      .inputs = {{.name = "x", .doc = "[b, c, s...]: batch, channels, spatial dimensions"}},
      .outputs = {{.name = "y", .doc = "[b, c, t...], sized as by conv"}},
      .attrs = AveragePoolAttrs(),
      .factors = "b c s... -> b c t...; spatial dimensions are whole; linear in x"};
  def.schema.attrs.push_back(ResultDimsAttr());
  def.infer = InferPool;
  def.rule = [](const Attributes&, const Types& inputs, const Types& outputs) {
    return WithLinear(PoolRule("s -> t", inputs, outputs), 0);
  };
  def.gradient = [](GradientBuilder& b) {
    const ValueId dy = OutputGrad(b, 0);
    if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
    Attributes attrs = Copied(b.attrs(), AveragePoolAttrs());
    attrs.Set("to", DimsText(b.input_type(0).dims));
    SetGrad(b, 0, Add1(b, "average_pool_grad", {dy}, attrs));
    return absl::OkStatus();
  };
  def.flops = OnePerWindowElement(0, true);
  return def;
}

OpDef AveragePoolGradDef() {
  OpDef def;
  def.schema = {.name = "average_pool_grad",
                .doc = "dx = the share of each element in dy, summed over its windows.",
                .inputs = {{.name = "dy", .doc = "[b, c, t...]"}},
                .outputs = {{.name = "dx", .doc = "[b, c, s...], the dimensions of `to`"}},
                .attrs = AveragePoolAttrs(),
                .internal = true,
                .factors = "b c t... -> b c s...; spatial dimensions are whole; linear in dy"};
  def.schema.attrs.push_back(
      {"to", AttrKind::kString, std::nullopt, "dimensions of dx (type text)"});
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"dy"});
    check.Real(0);
    CheckSpatial(0, &check);
    WEIR_RETURN_IF_ERROR(check.status());
    sbp::TensorType dx{in.inputs[0].dtype, {}};
    WEIR_ASSIGN_OR_RETURN(dx.dims, ParseDims(in.attrs.Str("to"), in.dims));
    if (dx.dims.size() != in.inputs[0].dims.size())
      return Rejected({"W0307", "", "as many dimensions in `to` as in dy", ToText(dx), ""});
    WEIR_RETURN_IF_ERROR(CheckWindows(in, dx, 0));
    return Types{dx};
  };
  def.rule = [](const Attributes&, const Types& inputs, const Types& outputs) {
    return WithLinear(PoolRule("t -> s", inputs, outputs), 0);
  };
  def.flops = OnePerWindowElement(0, false);
  return def;
}

WEIR_REGISTER_OP(MaxPoolDef());
WEIR_REGISTER_OP(MaxPoolGradDef());
WEIR_REGISTER_OP(AveragePoolDef());
WEIR_REGISTER_OP(AveragePoolGradDef());

}  // namespace
}  // namespace weir::ops
