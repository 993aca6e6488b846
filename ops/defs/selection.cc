// Ops that choose elements along an axis by their value (top_k, argmax), and sums of the elements
// before each element (cumsum).
#include "absl/strings/str_cat.h"
#include "ops/defs/axis_rule.h"
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

AttrSchema AxisAttr() { return {"axis", AttrKind::kInt, std::nullopt, "axis of x, from 0"}; }
AttrSchema LargestAttr() {
  return {"largest", AttrKind::kBool, true, "true: the largest come first; false: the smallest"};
}
// The op writes places along its axis of x.
IndexedAxis PlacesOfX() { return {.operand = 0, .axis = IndexedAxis::kAttribute}; }

constexpr double kFlopsOfChoice = 2;  // a comparison of values, and of places

absl::StatusOr<Types> InferTopK(const InferInput& in) {
  const int64_t axis = in.attrs.Int("axis"), k = in.attrs.Int("k");
  OperandCheck check(in, {"x"});
  WEIR_RETURN_IF_ERROR(check.Real(0).Axis("axis", axis, 0).status());
  sbp::TensorType values = in.inputs[0];
  sbp::TensorDim& dim = values.dims[axis];
  if (k < 1 || k > dim.size) {
    return Rejected({"W0310", "",
                     absl::StrCat("k from 1 to ", dim.size, ", the size of ", dim.name, " in x ",
                                  ToText(in.inputs[0])),
                     absl::StrCat("k ", k), absl::StrCat("k: ", k < 1 ? 1 : dim.size)});
  }
  dim.size = k;
  dim.unit = 1;
  WEIR_RETURN_IF_ERROR(NameResult(in, &values));
  return Types{values, {DType::kI32, values.dims}};
}

OpDef TopKDef() {
  OpDef def;
  def.schema = {
      .name = "top_k",
      .doc =
          "The k largest elements of x along one axis, the largest first, and their places. Of "
          "equal elements, the one with the lower place comes first. NaN counts as the largest.",
      .inputs = {{.name = "x", .doc = "any shape with the axis"}},
      .outputs = {{.name = "values", .doc = "like x, k long (unit 1) along the axis"},
                  {.name = "indices",
                   .optional = true,
                   .doc = "i32, shaped like values: places along the axis",
                   .index = PlacesOfX()}},
      .attrs = {AxisAttr(),
                {"k", AttrKind::kInt, std::nullopt, "number of elements"},
                LargestAttr(),
                ResultDimsAttr()},
      .factors = "... v ... -> ... k ..., ... k ...; v and k are whole"};
  def.infer = InferTopK;
  def.rule = [](const Attributes& attrs, const Types& inputs, const Types& outputs) {
    return WholeAxisRule(inputs, outputs, static_cast<int>(attrs.Int("axis")));
  };
  def.gradient = [](GradientBuilder& b) {
    const ValueId dvalues = OutputGrad(b, 0);
    if (dvalues < 0 || !b.needs_grad(0)) return absl::OkStatus();
    SetGrad(b, 0,
            Add1(b, "scatter_add", {dvalues, b.output(1)},
                 {{"axis", b.attrs().Int("axis")}, {"to", DimsText(b.input_type(0).dims)}}));
    return absl::OkStatus();
  };
  def.flops = FlopsPerInput(kFlopsOfChoice);
  return def;
}

OpDef ArgmaxDef() {
  OpDef def;
  def.schema = {.name = "argmax",
                .doc =
                    "The place of the largest element of x along one axis, of equal ones the "
                    "first. NaN counts as the largest.",
                .inputs = {{.name = "x", .doc = "any shape with the axis"}},
                .outputs = {{.name = "y", .doc = "i32, x without the axis", .index = PlacesOfX()}},
                .attrs = {AxisAttr(),
                          {"largest", AttrKind::kBool, true,
                           "true: the place of the largest; false: of the smallest"}},
                .factors = "... v ... -> ...; v is whole"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    const int64_t axis = in.attrs.Int("axis");
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Real(0).Axis("axis", axis, 0).status());
    sbp::TensorType y{DType::kI32, in.inputs[0].dims};
    y.dims.erase(y.dims.begin() + axis);
    return Types{y};
  };
  def.rule = [](const Attributes& attrs, const Types& inputs, const Types& outputs) {
    const int64_t axis = attrs.Int("axis");
    sbp::FactorRule rule = LackingAxesRule(inputs, outputs, inputs[0], {axis});
    rule.factors[axis].whole = true;
    return rule;
  };
  def.flops = FlopsPerInput(kFlopsOfChoice);
  return def;
}

OpDef CumsumDef() {
  OpDef def;
  def.schema = {.name = "cumsum",
                .doc = "The sum of the elements of x from the first to each one along one axis.",
                .inputs = {{.name = "x", .doc = "any shape with the axis"}},
                .outputs = {{.name = "y", .doc = "like x"}},
                .attrs = {AxisAttr(),
                          {"exclusive", AttrKind::kBool, false, "true: without the element itself"},
                          {"reverse", AttrKind::kBool, false, "true: from the last to each one"}},
                .factors = "... n ... -> ... n ...; n is whole; linear in x"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Real(0).Axis("axis", in.attrs.Int("axis"), 0).status());
    return Types{in.inputs[0]};
  };
  def.rule = [](const Attributes& attrs, const Types& inputs, const Types& outputs) {
    sbp::FactorRule rule = LackingAxesRule(inputs, outputs, inputs[0], {});
    rule.factors[attrs.Int("axis")].whole = true;
    rule.linear.push_back(ToAllOutputs({0}, 1));
    return rule;
  };
  def.gradient = [](GradientBuilder& b) {
    const ValueId dy = OutputGrad(b, 0);
    if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
    SetGrad(b, 0,
            Add1(b, "cumsum", {dy},
                 {{"axis", b.attrs().Int("axis")},
                  {"exclusive", b.attrs().Bool("exclusive")},
                  {"reverse", !b.attrs().Bool("reverse")}}));
    return absl::OkStatus();
  };
  def.flops = FlopsPerInput(1);
  return def;
}

WEIR_REGISTER_OP(TopKDef());
WEIR_REGISTER_OP(ArgmaxDef());
WEIR_REGISTER_OP(CumsumDef());

}  // namespace
}  // namespace weir::ops
