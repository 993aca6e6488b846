// reduce_sum, reduce_mean and reduce_max over some axes, and the ops that their gradients need:
// expand and reduce_max_grad.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/axis_rule.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

bool Reduced(const std::vector<int64_t>& axes, size_t d) {
  return axes.empty() || std::count(axes.begin(), axes.end(), static_cast<int64_t>(d)) > 0;
}

std::vector<sbp::TensorDim> Remaining(const std::vector<sbp::TensorDim>& dims,
                                      const std::vector<int64_t>& axes) {
  std::vector<sbp::TensorDim> rest;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!Reduced(axes, d)) rest.push_back(dims[d]);
  }
  return rest;
}

// Checks that axes exist and are named once.
absl::Status CheckAxes(const std::vector<int64_t>& axes, const sbp::TensorType& type,
                       const std::string& operand) {
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  bool fits = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  for (int64_t axis : sorted)
    fits = fits && axis >= 0 && axis < static_cast<int64_t>(type.dims.size());
  if (fits) return absl::OkStatus();
  return Rejected(
      {"W0310", "", absl::StrCat("axes of ", operand, " ", ToText(type), ", from 0, each once"),
       absl::StrCat("[", absl::StrJoin(axes, ", "), "]"), "an empty list for all axes"});
}

const AttrSchema& AxesAttr() {
  static const auto* attr = new AttrSchema{"axes", AttrKind::kInts, std::vector<int64_t>{},
                                           "axes to reduce, from 0; empty: all"};
  return *attr;
}

absl::StatusOr<std::vector<sbp::TensorType>> InferReduce(const InferInput& in) {
  std::vector<int64_t> axes = in.attrs.Ints("axes");
  OperandCheck check(in, {"x"});
  WEIR_RETURN_IF_ERROR(check.Real(0).status());
  WEIR_RETURN_IF_ERROR(CheckAxes(axes, in.inputs[0], "x"));
  WEIR_ASSIGN_OR_RETURN(DType dtype,
                        RealDType("out_dtype", in.attrs.Str("out_dtype"), in.inputs[0].dtype));
  return std::vector<sbp::TensorType>{sbp::TensorType{dtype, Remaining(in.inputs[0].dims, axes)}};
}

OpDef ReduceDef(const std::string& name, const std::string& doc) {
  OpDef def;
  def.schema = {.name = name,
                .doc = doc,
                .inputs = {{.name = "x", .doc = "any shape"}},
                .outputs = {{.name = "y", .doc = "x without the reduced dimensions"}},
                .attrs = {AxesAttr()},
                .factors = "... -> what remains; reduced axes are merged by sum; linear in x"};
  def.infer = InferReduce;
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    sbp::FactorRule rule = LackingAxesRule(inputs, outputs, inputs[0], attrs.Ints("axes"));
    rule.linear.push_back(ToAllOutputs({0}, 1));
    return rule;
  };
  def.flops = FlopsPerInput(1);
  return def;
}

// Returns the gradient of a sum: `grad` repeated, in the element type of x.
ValueId ExpandLikeInput(GradientBuilder& b, ValueId grad) {
  const sbp::TensorType x = b.input_type(0);
  if (b.type(grad).dtype != x.dtype)
    grad = Add1(b, "cast", {grad}, {{"to", std::string(Name(x.dtype))}});
  return Add1(b, "expand", {grad}, {{"axes", b.attrs().Ints("axes")}, {"to", DimsText(x.dims)}});
}

const AttrSchema& OutDTypeAttr() {
  static const auto* attr = new AttrSchema{"out_dtype", AttrKind::kString, std::string(),
                                           "element type of y; empty: like x"};
  return *attr;
}

OpDef ReduceSumDef() {
  OpDef def = ReduceDef("reduce_sum", "Sum over the axes.");
  def.schema.attrs.push_back(OutDTypeAttr());
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) SetGrad(b, 0, ExpandLikeInput(b, dy));
    return absl::OkStatus();
  };
  return def;
}

OpDef ReduceMeanDef() {
  OpDef def = ReduceDef("reduce_mean",
                        "Mean over the axes; a shard divides by the count of the whole tensor.");
  def.schema.attrs.push_back(OutDTypeAttr());
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
    double count = 1;
    const sbp::TensorType x = b.input_type(0);
    for (size_t d = 0; d < x.dims.size(); ++d) {
      if (Reduced(b.attrs().Ints("axes"), d)) count *= static_cast<double>(x.dims[d].size);
    }
    SetGrad(b, 0, ExpandLikeInput(b, Add1(b, "scale", {dy}, {{"factor", 1.0 / count}})));
    return absl::OkStatus();
  };
  return def;
}

OpDef ReduceMaxDef() {
  OpDef def = ReduceDef("reduce_max", "Largest element over the axes.");
  def.schema.factors = "... -> what remains; reduced axes are merged by max";
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    sbp::FactorRule rule = LackingAxesRule(inputs, outputs, inputs[0], attrs.Ints("axes"));
    for (size_t d = 0; d < rule.factors.size(); ++d) {
      if (Reduced(attrs.Ints("axes"), d)) rule.factors[d].combiner = Combiner::kMax;
    }
    return rule;
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) {
      SetGrad(b, 0,
              Add1(b, "reduce_max_grad", {b.input(0), b.output(0), dy},
                   {{"axes", b.attrs().Ints("axes")}}));
    }
    return absl::OkStatus();
  };
  return def;
}

OpDef ReduceMaxGradDef() {
  OpDef def;
  def.schema = {.name = "reduce_max_grad",
                .doc = "dx = dy wherever x equals the maximum y: equal maxima all get dy.",
                .inputs = {{.name = "x", .doc = "input of reduce_max"},
                           {.name = "y", .doc = "its result"},
                           {.name = "dy", .doc = "like y"}},
                .outputs = {{.name = "dx", .doc = "like x"}},
                .attrs = {AxesAttr()},
                .internal = true,
                .factors = "..., what remains, what remains -> ...; linear in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    std::vector<int64_t> axes = in.attrs.Ints("axes");
    OperandCheck check(in, {"x", "y", "dy"});
    WEIR_RETURN_IF_ERROR(check.Real(0).SameType(1, 0).SameType(2, 0).SameShape(2, 1).status());
    WEIR_RETURN_IF_ERROR(CheckAxes(axes, in.inputs[0], "x"));
    sbp::TensorType rest{in.inputs[0].dtype, Remaining(in.inputs[0].dims, axes)};
    if (rest.shape() != in.inputs[1].shape()) {
      return Rejected({"W0308", "",
                       absl::StrCat("y shaped like x without the reduced axes, ", ToText(rest)),
                       ToText(in.inputs[1]), ""});
    }
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    sbp::FactorRule rule = LackingAxesRule(inputs, outputs, inputs[0], attrs.Ints("axes"));
    rule.linear.push_back(ToAllOutputs({2}, 1));
    return rule;
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

absl::StatusOr<std::vector<sbp::TensorType>> InferExpand(const InferInput& in) {
  std::vector<int64_t> axes = in.attrs.Ints("axes");
  sbp::TensorType dx{in.inputs[0].dtype, {}};
  OperandCheck check(in, {"dy"});
  WEIR_RETURN_IF_ERROR(check.Real(0).status());
  WEIR_ASSIGN_OR_RETURN(dx.dims, ParseDims(in.attrs.Str("to"), in.dims));
  WEIR_RETURN_IF_ERROR(CheckAxes(axes, dx, "the result"));
  sbp::TensorType rest{dx.dtype, Remaining(dx.dims, axes)};
  if (rest.shape() != in.inputs[0].shape()) {
    return Rejected({"W0308", "",
                     absl::StrCat("dy shaped like `to` without the repeated axes, ", ToText(rest)),
                     ToText(in.inputs[0]), ""});
  }
  return std::vector<sbp::TensorType>{dx};
}

OpDef ExpandDef() {
  OpDef def;
  def.schema = {.name = "expand",
                .doc = "dy repeated along new axes; the gradient of a sum.",
                .inputs = {{.name = "dy", .doc = "the result without the axes"}},
                .outputs = {{.name = "dx", .doc = "the dimensions of `to`"}},
                .attrs = {{"axes", AttrKind::kInts, std::vector<int64_t>{},
                           "axes of dx to repeat along; empty: all"},
                          {"to", AttrKind::kString, std::nullopt,
                           "all dimensions of dx, items name[=size[/unit]]"}},
                .internal = true,
                .factors = "what remains -> ...; linear in dy"};
  def.infer = InferExpand;
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    sbp::FactorRule rule = LackingAxesRule(inputs, outputs, outputs[0], attrs.Ints("axes"));
    rule.linear.push_back(ToAllOutputs({0}, 1));
    return rule;
  };
  def.flops = NoFlops();
  return def;
}

WEIR_REGISTER_OP(ReduceSumDef());
WEIR_REGISTER_OP(ReduceMeanDef());
WEIR_REGISTER_OP(ReduceMaxDef());
WEIR_REGISTER_OP(ReduceMaxGradDef());
WEIR_REGISTER_OP(ExpandDef());

}  // namespace
}  // namespace weir::ops
