#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "ops/defs/axis_rule.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

absl::StatusOr<std::vector<sbp::TensorType>> InferConcat(const InferInput& in) {
  int64_t axis = in.attrs.Int("axis");
  OperandCheck check(in, {"x"});
  WEIR_RETURN_IF_ERROR(check.Axis("axis", axis, 0).status());
  sbp::TensorType y = in.inputs[0];
  int rank = static_cast<int>(y.dims.size());
  for (int i = 1; i < static_cast<int>(in.inputs.size()); ++i) {
    check.SameType(i, 0).Rank(i, rank);
    for (int d = 0; d < rank; ++d) {
      if (d != axis) check.SameSize(i, d, 0, d);
    }
    WEIR_RETURN_IF_ERROR(check.status());
    const sbp::TensorDim& dim = in.inputs[i].dims[axis];
    int64_t& size = y.dims[axis].size;
    if (dim.size > std::numeric_limits<int64_t>::max() - size) {
      return Rejected({"W0313", "", "a size below 2^63 along the axis of concat",
                       absl::StrCat(size, " + ", dim.size), ""});
    }
    size += dim.size;
    y.dims[axis].unit = std::gcd(y.dims[axis].unit, dim.unit);
  }
  return std::vector<sbp::TensorType>{y};
}

absl::Status ConcatGradient(GradientBuilder& b) {
  ValueId dy = OutputGrad(b, 0);
  if (dy < 0) return absl::OkStatus();
  int64_t axis = b.attrs().Int("axis"), begin = 0;
  for (int i = 0; i < b.num_inputs(); ++i) {
    int64_t size = b.input_type(i).dims[axis].size;
    if (b.needs_grad(i))
      SetGrad(b, i, Add1(b, "slice", {dy}, {{"axis", axis}, {"begin", begin}, {"size", size}}));
    begin += size;
  }
  return absl::OkStatus();
}

OpDef ConcatDef() {
  OpDef def;
  def.schema = {
      .name = "concat",
      .doc = "The inputs laid end to end along one axis.",
      .inputs = {{.name = "x", .variadic = true, .doc = "equal in all dimensions but the axis"}},
      .outputs = {{.name = "y",
                   .doc = "named like the first input; the sizes of the axis added up"}},
      .attrs = {{"axis", AttrKind::kInt, std::nullopt, "axis of the inputs, from 0"}},
      .factors = "..., ... -> ...; the axis is whole; linear in all inputs together",
      .moves_elements = true};
  def.infer = InferConcat;
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    sbp::FactorRule rule = WholeAxisRule(inputs, outputs, static_cast<int>(attrs.Int("axis")));
    std::vector<int> all(inputs.size());
    std::iota(all.begin(), all.end(), 0);
    if (IsReal(inputs[0].dtype)) rule.linear.push_back(ToAllOutputs(std::move(all), 1));
    return rule;
  };
  def.gradient = ConcatGradient;
  def.flops = NoFlops();
  return def;
}

WEIR_REGISTER_OP(ConcatDef());

}  // namespace
}  // namespace weir::ops
