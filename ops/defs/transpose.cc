#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

bool IsPermutation(const std::vector<int64_t>& perm, size_t rank) {
  std::vector<bool> seen(rank, false);
  for (int64_t axis : perm) {
    if (axis < 0 || axis >= static_cast<int64_t>(rank) || seen[axis]) return false;
    seen[axis] = true;
  }
  return perm.size() == rank;
}

std::vector<int64_t> Inverse(const std::vector<int64_t>& perm) {
  std::vector<int64_t> inverse(perm.size());
  for (size_t d = 0; d < perm.size(); ++d) inverse[perm[d]] = static_cast<int64_t>(d);
  return inverse;
}

OpDef TransposeDef() {
  OpDef def;
  def.schema = {
      .name = "transpose",
      .doc = "Dimension d of y is dimension perm[d] of x.",
      .inputs = {{.name = "x", .doc = "any shape"}},
      .outputs = {{.name = "y", .doc = "the dimensions of x in the order of perm"}},
      .attrs = {{"perm", AttrKind::kInts, std::nullopt, "each axis of x once, such as [1, 0]"}},
      .factors = "... -> ... in the order of perm; linear in x",
      .moves_elements = true};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    const sbp::TensorType& x = in.inputs[0];
    std::vector<int64_t> perm = in.attrs.Ints("perm");
    if (!IsPermutation(perm, x.dims.size())) {
      std::vector<int64_t> reverse;
      for (size_t d = x.dims.size(); d-- > 0;) reverse.push_back(static_cast<int64_t>(d));
      return Rejected({"W0310", "", absl::StrCat("perm with each axis of x ", ToText(x), " once"),
                       absl::StrCat("[", absl::StrJoin(perm, ", "), "]"),
                       absl::StrCat("such as [", absl::StrJoin(reverse, ", "), "]")});
    }
    sbp::TensorType y{x.dtype, {}};
    for (int64_t axis : perm) y.dims.push_back(x.dims[axis]);
    return std::vector<sbp::TensorType>{y};
  };
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    sbp::FactorRule rule;
    rule.inputs.resize(1);
    rule.outputs.resize(1);
    for (size_t d = 0; d < inputs[0].dims.size(); ++d) {
      rule.factors.push_back(sbp::Factor{.size = inputs[0].dims[d].size});
      rule.inputs[0].dims.push_back({static_cast<int>(d)});
    }
    for (int64_t axis : attrs.Ints("perm"))
      rule.outputs[0].dims.push_back({static_cast<int>(axis)});
    TakeUnitsAndNames(inputs, outputs, &rule);
    if (IsReal(inputs[0].dtype)) rule.linear.push_back(ToAllOutputs({0}, 1));
    return rule;
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) {
      SetGrad(b, 0, Add1(b, "transpose", {dy}, {{"perm", Inverse(b.attrs().Ints("perm"))}}));
    }
    return absl::OkStatus();
  };
  def.flops = NoFlops();
  return def;
}

WEIR_REGISTER_OP(TransposeDef());

}  // namespace
}  // namespace weir::ops
