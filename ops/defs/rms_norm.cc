// rms_norm and its gradient.
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

absl::Status RmsNormGradient(GradientBuilder& b) {
  WEIR_RETURN_IF_ERROR(ExpectNoGrad(b, "rms_norm", 1, "rstd"));
  ValueId dy = OutputGrad(b, 0);
  if (dy < 0 || !(b.needs_grad(0) || b.needs_grad(1))) return absl::OkStatus();
  std::vector<ValueId> grads = b.Add("rms_norm_grad", {b.input(0), b.input(1), b.output(1), dy},
                                     {{"out_dtype", std::string("f32")}});
  if (b.needs_grad(0)) SetGrad(b, 0, grads[0]);
  if (b.needs_grad(1)) SetGrad(b, 1, grads[1]);
  return absl::OkStatus();
}

OpDef RmsNormDef() {
  OpDef def;
  def.schema = {.name = "rms_norm",
                .doc = "y = x / sqrt(mean of x^2 + epsilon) * gamma over the last dimension.",
                .inputs = {{.name = "x", .doc = "[..., h]"}, {.name = "gamma", .doc = "[h]"}},
                .outputs = {{.name = "y", .doc = "like x"},
                            {.name = "rstd",
                             .optional = true,
                             .doc = "f32[...], 1 / sqrt(mean of x^2 + epsilon)"}},
                .attrs = {{"epsilon", AttrKind::kReal, 1e-5, "added to the mean of squares"}},
                .factors = "... h, h -> ... h, ...; h is whole"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x", "gamma"});
    check.Real(0).MinRank(0, 1).SameType(1, 0).Rank(1, 1).SameSize(1, 0, 0, -1);
    WEIR_RETURN_IF_ERROR(check.status());
    WEIR_RETURN_IF_ERROR(CheckNotNegative(in.attrs, "epsilon"));
    sbp::TensorType rstd{DType::kF32, in.inputs[0].dims};
    rstd.dims.pop_back();
    return std::vector<sbp::TensorType>{in.inputs[0], rstd};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... h, h -> ... h, ...", inputs, outputs).Whole("h").Build();
  };
  def.gradient = RmsNormGradient;
  def.flops = FlopsPerOutput(5);
  return def;
}

OpDef RmsNormGradDef() {
  OpDef def;
  def.schema = {
      .name = "rms_norm_grad",
      .doc = "Gradients of rms_norm.",
      .inputs = {{.name = "x", .doc = "[..., h]"},
                 {.name = "gamma", .doc = "[h]"},
                 {.name = "rstd", .doc = "f32[...]"},
                 {.name = "dy", .doc = "like x"}},
      .outputs = {{.name = "dx", .doc = "like x"}, {.name = "dgamma", .doc = "[h]"}},
      .attrs = {{"out_dtype", AttrKind::kString, std::string("f32"), "element type of dgamma"}},
      .internal = true,
      .factors =
          "... h, h, ..., ... h -> ... h, h; h is whole, leading dimensions are summed into "
          "dgamma; "
          "linear in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x", "gamma", "rstd", "dy"});
    check.Real(0).MinRank(0, 1).SameType(1, 0).Rank(1, 1).SameSize(1, 0, 0, -1);
    check.Is(2, DType::kF32).LeadingShape(2, 0, 1).SameType(3, 0).SameShape(3, 0);
    WEIR_RETURN_IF_ERROR(check.status());
    WEIR_ASSIGN_OR_RETURN(DType dtype,
                          RealDType("out_dtype", in.attrs.Str("out_dtype", "f32"), DType::kF32));
    return std::vector<sbp::TensorType>{in.inputs[0], sbp::TensorType{dtype, in.inputs[1].dims}};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... h, h, ..., ... h -> ... h, h", inputs, outputs)
        .Whole("h")
        .Linear({3})
        .Build();
  };
  def.flops = FlopsPerOutput(10);
  return def;
}

WEIR_REGISTER_OP(RmsNormDef());
WEIR_REGISTER_OP(RmsNormGradDef());

}  // namespace
}  // namespace weir::ops
