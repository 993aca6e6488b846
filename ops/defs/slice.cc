// slice along one axis, and pad. Each is the gradient of the other.
#include "absl/strings/str_cat.h"
#include "ops/defs/axis_rule.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/window.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

sbp::FactorRule AlongAxisRule(const Attributes& attrs, const std::vector<sbp::TensorType>& inputs,
                              const std::vector<sbp::TensorType>& outputs) {
  sbp::FactorRule rule = WholeAxisRule(inputs, outputs, static_cast<int>(attrs.Int("axis")));
  if (IsReal(inputs[0].dtype)) rule.linear.push_back(ToAllOutputs({0}, 1));
  return rule;
}

OpDef SliceDef() {
  OpDef def;
  def.schema = {.name = "slice",
                .doc = "Elements begin to begin + size - 1 of x along one axis.",
                .inputs = {{.name = "x", .doc = "any shape"}},
                .outputs = {{.name = "y", .doc = "like x, `size` long (unit 1) along the axis"}},
                .attrs = {{"axis", AttrKind::kInt, std::nullopt, "axis of x, from 0"},
                          {"begin", AttrKind::kInt, std::nullopt, "first element"},
                          {"size", AttrKind::kInt, std::nullopt, "number of elements"}},
                .factors = "... -> ...; the axis is whole; linear in x",
                .moves_elements = true};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    int64_t axis = in.attrs.Int("axis"), begin = in.attrs.Int("begin"), size = in.attrs.Int("size");
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Axis("axis", axis, 0).status());
    sbp::TensorType y = in.inputs[0];
    sbp::TensorDim& dim = y.dims[axis];
    if (begin < 0 || size < 1 || begin > dim.size || size > dim.size - begin) {
      return Rejected(
          {"W0310", "",
           absl::StrCat("0 <= begin, 1 <= size and begin + size <= ", dim.size, ", the size of ",
                        dim.name, " in x ", ToText(in.inputs[0])),
           absl::StrCat("begin ", begin, ", size ", size),
           begin >= 0 && begin < dim.size ? absl::StrCat("size: ", dim.size - begin) : "begin: 0"});
    }
    dim.size = size;
    dim.unit = 1;
    return std::vector<sbp::TensorType>{y};
  };
  def.rule = AlongAxisRule;
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
    int64_t axis = b.attrs().Int("axis");
    const sbp::TensorDim dim = b.input_type(0).dims[axis];
    SetGrad(b, 0,
            Add1(b, "pad", {dy},
                 {{"axis", axis},
                  {"begin", b.attrs().Int("begin")},
                  {"size", dim.size},
                  {"unit", dim.unit}}));
    return absl::OkStatus();
  };
  def.flops = NoFlops();
  return def;
}

OpDef PadDef() {
  OpDef def;
  def.schema = {.name = "pad",
                .doc = "y is x from `begin` on along one axis, and zero elsewhere.",
                .inputs = {{.name = "x", .doc = "any shape"}},
                .outputs = {{.name = "y", .doc = "like x, `size` long along the axis"}},
                .attrs = {{"axis", AttrKind::kInt, std::nullopt, "axis of x, from 0"},
                          {"begin", AttrKind::kInt, std::nullopt, "where x begins in y"},
                          {"size", AttrKind::kInt, std::nullopt, "size of y along the axis"},
                          {"unit", AttrKind::kInt, int64_t{1}, "unit of y along the axis"},
                          ResultDimsAttr()},
                .factors = "... -> ...; the axis is whole; linear in x"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    int64_t axis = in.attrs.Int("axis"), begin = in.attrs.Int("begin"), size = in.attrs.Int("size");
    int64_t unit = in.attrs.Int("unit", 1);
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Real(0).Axis("axis", axis, 0).status());
    sbp::TensorType y = in.inputs[0];
    sbp::TensorDim& dim = y.dims[axis];
    if (begin < 0 || size < dim.size || begin > size - dim.size || unit < 1 || size % unit != 0) {
      return Rejected(
          {"W0310", "",
           absl::StrCat("0 <= begin, begin + ", dim.size,
                        " <= size and size a multiple of unit for x ", ToText(in.inputs[0])),
           absl::StrCat("begin ", begin, ", size ", size, ", unit ", unit), ""});
    }
    dim.size = size;
    dim.unit = unit;
    WEIR_RETURN_IF_ERROR(NameResult(in, &y));
    return std::vector<sbp::TensorType>{y};
  };
  def.rule = AlongAxisRule;
  def.gradient = [](GradientBuilder& b) {
    const ValueId dy = OutputGrad(b, 0);
    if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
    const int64_t axis = b.attrs().Int("axis");
    SetGrad(b, 0,
            Add1(b, "slice", {dy},
                 {{"axis", axis},
                  {"begin", b.attrs().Int("begin")},
                  {"size", b.input_type(0).dims[axis].size}}));
    return absl::OkStatus();
  };
  def.flops = NoFlops();
  return def;
}

WEIR_REGISTER_OP(SliceDef());
WEIR_REGISTER_OP(PadDef());

}  // namespace
}  // namespace weir::ops
