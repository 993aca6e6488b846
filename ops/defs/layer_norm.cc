// layer_norm and its gradient.
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

absl::StatusOr<std::vector<sbp::TensorType>> InferLayerNorm(const InferInput& in) {
  OperandCheck check(in, {"x", "gamma", "beta"});
  check.Real(0).MinRank(0, 1);
  for (int i = 1; i <= 2; ++i) check.SameType(i, 0).Rank(i, 1).SameSize(i, 0, 0, -1);
  WEIR_RETURN_IF_ERROR(check.status());
  WEIR_RETURN_IF_ERROR(CheckNotNegative(in.attrs, "epsilon"));
  sbp::TensorType statistic{DType::kF32, in.inputs[0].dims};
  statistic.dims.pop_back();
  return std::vector<sbp::TensorType>{in.inputs[0], statistic, statistic};
}

absl::Status LayerNormGradient(GradientBuilder& b) {
  WEIR_RETURN_IF_ERROR(ExpectNoGrad(b, "layer_norm", 1, "mean"));
  WEIR_RETURN_IF_ERROR(ExpectNoGrad(b, "layer_norm", 2, "rstd"));
  ValueId dy = OutputGrad(b, 0);
  bool wanted = b.needs_grad(0) || b.needs_grad(1) || b.needs_grad(2);
  if (dy < 0 || !wanted) return absl::OkStatus();
  std::vector<ValueId> grads =
      b.Add("layer_norm_grad", {b.input(0), b.input(1), b.output(1), b.output(2), dy},
            {{"out_dtype", std::string("f32")}});
  if (b.needs_grad(0)) SetGrad(b, 0, grads[0]);
  if (b.needs_grad(1)) SetGrad(b, 1, grads[1]);
  if (b.needs_grad(2)) SetGrad(b, 2, grads[2]);
  return absl::OkStatus();
}

OpDef LayerNormDef() {
  OpDef def;
  def.schema = {
      .name = "layer_norm",
      .doc = "y = (x - mean) / sqrt(variance + epsilon) * gamma + beta over the last dimension.",
      .inputs = {{.name = "x", .doc = "[..., h]"},
                 {.name = "gamma", .doc = "[h]"},
                 {.name = "beta", .optional = true, .doc = "[h]"}},
      .outputs = {{.name = "y", .doc = "like x"},
                  {.name = "mean", .optional = true, .doc = "f32[...]"},
                  {.name = "rstd",
                   .optional = true,
                   .doc = "f32[...], 1 / sqrt(variance + epsilon)"}},
      .attrs = {{"epsilon", AttrKind::kReal, 1e-5, "added to the variance"}},
      .factors = "... h, h, h -> ... h, ..., ...; h is whole"};
  def.infer = InferLayerNorm;
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... h, h, h -> ... h, ..., ...", inputs, outputs).Whole("h").Build();
  };
  def.gradient = LayerNormGradient;
  def.flops = FlopsPerOutput(8);
  return def;
}

OpDef LayerNormGradDef() {
  OpDef def;
  def.schema = {.name = "layer_norm_grad",
                .doc = "Gradients of layer_norm.",
                .inputs = {{.name = "x", .doc = "[..., h]"},
                           {.name = "gamma", .doc = "[h]"},
                           {.name = "mean", .doc = "f32[...]"},
                           {.name = "rstd", .doc = "f32[...]"},
                           {.name = "dy", .doc = "like x"}},
                .outputs = {{.name = "dx", .doc = "like x"},
                            {.name = "dgamma", .doc = "[h]"},
                            {.name = "dbeta", .optional = true, .doc = "[h]"}},
                .attrs = {{"out_dtype", AttrKind::kString, std::string("f32"),
                           "element type of dgamma and dbeta"}},
                .internal = true,
                .factors =
                    "... h, h, ..., ..., ... h -> ... h, h, h; h is whole, leading dimensions are "
                    "summed into "
                    "dgamma and dbeta; linear in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x", "gamma", "mean", "rstd", "dy"});
    check.Real(0).MinRank(0, 1).SameType(1, 0).Rank(1, 1).SameSize(1, 0, 0, -1);
    check.Is(2, DType::kF32).LeadingShape(2, 0, 1).Is(3, DType::kF32).LeadingShape(3, 0, 1);
    check.SameType(4, 0).SameShape(4, 0);
    WEIR_RETURN_IF_ERROR(check.status());
    WEIR_ASSIGN_OR_RETURN(DType dtype,
                          RealDType("out_dtype", in.attrs.Str("out_dtype", "f32"), DType::kF32));
    sbp::TensorType dgamma{dtype, in.inputs[1].dims};
    return std::vector<sbp::TensorType>{in.inputs[0], dgamma, dgamma};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... h, h, ..., ..., ... h -> ... h, h, h", inputs, outputs)
        .Whole("h")
        .Linear({4})
        .Build();
  };
  def.flops = FlopsPerOutput(14);
  return def;
}

WEIR_REGISTER_OP(LayerNormDef());
WEIR_REGISTER_OP(LayerNormGradDef());

}  // namespace
}  // namespace weir::ops
